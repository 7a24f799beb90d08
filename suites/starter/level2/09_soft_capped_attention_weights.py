"""Attention weights with capped scores, a penalty on distance and a causal mask.

Gemma caps scores by a hyperbolic tangent; ALiBi penalises distance by head. Eager writes the
scores six times. Half of them are masked: a kernel need not read those.
"""

import torch
from torch import nn

BATCH = 2
HEADS = 16
LENGTH = 1024


class Model(nn.Module):
    """`softmax(cap tanh(s / cap) - slope (i - j))` over `j <= i`."""

    def __init__(self, heads: int, cap: float) -> None:
        super().__init__()
        self.cap = cap
        slope = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
        self.register_buffer("slope", slope.view(heads, 1, 1))

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        position = torch.arange(scores.shape[-1], device=scores.device)
        distance = position.unsqueeze(-1) - position
        biased = self.cap * torch.tanh(scores / self.cap) - self.slope * distance
        return torch.softmax(biased.masked_fill(distance < 0, float("-inf")), dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [4 * torch.randn(BATCH, HEADS, LENGTH, LENGTH)]


def get_init_inputs() -> list[int | float]:
    return [HEADS, 20.0]
