"""A momentum step whose gradient is first clipped by its norm over the whole tensor.

Gradient clipping puts a global reduction before an elementwise update: the gradient is read twice,
unless it stays in the cache.
"""

import torch
from torch import nn

ROWS = 4096
COLUMNS = 3072


class Model(nn.Module):
    """`v = momentum v + g min(1, limit / |g|)` and `w - rate v`."""

    def __init__(self, rate: float, momentum: float, limit: float) -> None:
        super().__init__()
        self.rate = rate
        self.momentum = momentum
        self.limit = limit

    def forward(
        self, weight: torch.Tensor, gradient: torch.Tensor, velocity: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        norm = gradient.square().sum().sqrt()
        factor = (self.limit / (norm + 1e-6)).clamp(max=1.0)
        velocity = self.momentum * velocity + gradient * factor
        return weight - self.rate * velocity, velocity


def get_inputs() -> list[torch.Tensor]:
    shape = (ROWS, COLUMNS)
    # A gradient whose norm is one to three times the limit, another one in each call.
    gradient = (0.5 + torch.rand(1)) * torch.randn(shape)
    return [torch.randn(shape), gradient, 0.5 * torch.randn(shape)]


def get_init_inputs() -> list[float]:
    return [0.05, 0.9, 0.5 * (ROWS * COLUMNS) ** 0.5]
