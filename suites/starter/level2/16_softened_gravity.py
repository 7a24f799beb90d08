"""Gravitational potential at every body of several clusters, from all bodies of its cluster.

The all-pairs sum of an N-body code. Eager writes the difference of every pair; a kernel keeps
pairs in registers and is bound by arithmetic.
"""

import torch
from torch import nn

CLUSTERS = 16
BODIES = 2048


class Model(nn.Module):
    """`-sum_j m_j / sqrt(|x_i - x_j|^2 + softening^2)`."""

    def __init__(self, softening: float) -> None:
        super().__init__()
        self.softening = softening

    def forward(self, position: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
        difference = position.unsqueeze(2) - position.unsqueeze(1)
        distance = difference.square().sum(dim=-1) + self.softening**2
        return -(mass.unsqueeze(1) * torch.rsqrt(distance)).sum(dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(CLUSTERS, BODIES, 3), torch.rand(CLUSTERS, BODIES) + 0.1]


def get_init_inputs() -> list[float]:
    return [0.05]
