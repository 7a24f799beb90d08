"""Residual and root-mean-square norm of a transformer layer, in bfloat16, both results kept.

The seam between two blocks: the sum goes on as the residual stream, the normed sum into the block.
Eager casts, squares, averages and scales in passes of their own; one pass can do all of it.
"""

import torch
from torch import nn

ROWS = 8192
FEATURES = 4096


class Model(nn.Module):
    """`s = x + residual` and `s / sqrt(mean(s^2) + eps) * weight`, statistics in float32."""

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter((1 + 0.3 * torch.randn(features)).to(torch.bfloat16))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        summed = x + residual
        wide = summed.float()
        normed = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
        return normed.to(x.dtype) * self.weight, summed


def get_inputs() -> list[torch.Tensor]:
    shape = (ROWS, FEATURES)
    return [torch.randn(shape).to(torch.bfloat16), 2 * torch.randn(shape).to(torch.bfloat16)]


def get_init_inputs() -> list[int | float]:
    return [FEATURES, 1e-5]
