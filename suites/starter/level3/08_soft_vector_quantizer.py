"""Vectors replaced by a mean of codebook entries, weighted by closeness.

The differentiable form of vector quantisation in audio and image codecs. Squared distances are a
product with a norm on either side, then a softmax over codes, then a second product.
"""

import torch
from torch import nn

VECTORS = 16384
FEATURES = 256
CODES = 1024


class Model(nn.Module):
    """`softmax(-|x - c|^2 / temperature) c`."""

    def __init__(self, features: int, codes: int, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.codebook = nn.Parameter(torch.randn(codes, features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x_norm = x.square().sum(dim=-1, keepdim=True)
        code_norm = self.codebook.square().sum(dim=-1)
        distance = x_norm - 2 * x @ self.codebook.T + code_norm
        closeness = torch.softmax(-distance / self.temperature, dim=-1)
        return closeness @ self.codebook


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(VECTORS, FEATURES)]


def get_init_inputs() -> list[int | float]:
    return [FEATURES, CODES, 32.0]
