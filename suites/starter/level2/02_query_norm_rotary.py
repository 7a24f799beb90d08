"""Queries normed per head and turned by their position, laid out for attention.

What newer language models do between the query projection and attention: a norm over a head's
features, rotary embedding, and heads moved before positions. Rows are short: one warp each.
"""

import torch
from torch import nn

BATCH = 4
LENGTH = 2048
HEADS = 16
HEAD_FEATURES = 128


class Model(nn.Module):
    """`[batch, length, heads * features]` to normed, turned `[batch, heads, length, features]`."""

    def __init__(self, heads: int, features: int, length: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.eps = eps
        self.weight = nn.Parameter(1 + 0.3 * torch.randn(features))
        frequency = 500000.0 ** (-torch.arange(0, features, 2) / features)
        angle = torch.outer(torch.arange(length), frequency)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, projected: torch.Tensor) -> torch.Tensor:
        x = projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        x = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight
        low, high = x.chunk(2, dim=-1)
        turned = (low * self.cos - high * self.sin, high * self.cos + low * self.sin)
        return torch.cat(turned, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, LENGTH, HEADS * HEAD_FEATURES)]


def get_init_inputs() -> list[int | float]:
    return [HEADS, HEAD_FEATURES, LENGTH, 1e-6]
