"""RMSNorm of five shapes."""

from typing import Any

import torch
from torch import nn


class Model(nn.Module):
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dimension."""

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1 + 0.5 * torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps) * self.weight


def get_workloads() -> list[dict[str, Any]]:
    return [{"rows": 1024}, {"rows": 2048}, {"rows": 4096}, {"rows": 6144}, {"rows": 8192}]


def get_inputs(rows: int = 4096) -> list[torch.Tensor]:
    return [torch.randn(rows, 4096)]


def get_init_inputs() -> list[Any]:
    return [4096, 1e-6]
