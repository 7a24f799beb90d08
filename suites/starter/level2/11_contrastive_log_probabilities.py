"""Which caption belongs to which image: log-probabilities over a batch, as CLIP is trained.

Two norms, a product of the normed embeddings, a learned temperature and a log-softmax over the
rows of the result. The norms can be folded into the product's result instead of its operands.
"""

import torch
from torch import nn
from torch.nn import functional

PAIRS = 4096
FEATURES = 512


class Model(nn.Module):
    """`log_softmax(exp(t) normalize(image) normalize(text)^T)`."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(temperature))

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        image = functional.normalize(image, dim=-1)
        text = functional.normalize(text, dim=-1)
        return torch.log_softmax(self.log_scale.exp() * image @ text.T, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    # A shared part, so that pairs are more alike than strangers.
    shared = torch.randn(PAIRS, FEATURES)
    return [torch.randn(PAIRS, FEATURES) + shared, torch.randn(PAIRS, FEATURES) + shared]


def get_init_inputs() -> list[float]:
    return [2.5]
