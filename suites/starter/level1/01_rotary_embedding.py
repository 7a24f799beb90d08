"""Rotary position embedding: pairs of features turned by an angle that grows with the position.

Every attention layer of a LLaMA-like model does this to its queries and keys, at every step.
Eager makes a rotated copy and two products; one pass over the memory is enough.
"""

import torch
from torch import nn

BATCH = 4
HEADS = 16
LENGTH = 2048
HEAD_FEATURES = 128


class Model(nn.Module):
    """`x cos(a) + rotate_half(x) sin(a)`, the angle `a` by position and pair of features."""

    def __init__(self, length: int, features: int, base: float) -> None:
        super().__init__()
        frequency = base ** (-torch.arange(0, features, 2) / features)
        angle = torch.outer(torch.arange(length), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat([-high, low], dim=-1) * self.sin


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, HEADS, LENGTH, HEAD_FEATURES)]


def get_init_inputs() -> list[int | float]:
    return [LENGTH, HEAD_FEATURES, 10000.0]
