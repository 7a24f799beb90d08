"""Per-token loss of a language model: label smoothing and a penalty on the partition function.

The z-loss keeps logits from drifting in long trainings. Rows over a vocabulary are read once for
the maximum, the sum of exponentials, the mean and one picked element.
"""

import torch
from torch import nn

TOKENS = 2048
VOCABULARY = 32000


class Model(nn.Module):
    """`lse - (1 - s) x[target] - s mean(x) + z lse^2` per token."""

    def __init__(self, smoothing: float, penalty: float) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.penalty = penalty

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        total = torch.logsumexp(logits, dim=-1)
        picked = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        wanted = (1 - self.smoothing) * picked + self.smoothing * logits.mean(dim=-1)
        return total - wanted + self.penalty * total.square()


def get_inputs() -> list[torch.Tensor]:
    # Tokens of different certainty.
    logits = (1 + 2 * torch.rand(TOKENS, 1)) * torch.randn(TOKENS, VOCABULARY)
    return [logits, torch.randint(0, VOCABULARY, (TOKENS,))]


def get_init_inputs() -> list[float]:
    return [0.1, 1e-3]
