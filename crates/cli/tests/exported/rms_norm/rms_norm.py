"""RMSNorm of two shapes."""

from typing import Any

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1 + 0.5 * torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight


def get_workloads() -> list[dict[str, Any]]:
    return [
        {"name": "decode", "arguments": {"rows": 4}},
        {"name": "prompt", "arguments": {"rows": 96}},
    ]


def get_inputs(rows: int = 4) -> list[torch.Tensor]:
    return [torch.randn(rows, 256)]


def get_init_inputs() -> list[int | float]:
    return [256, 1e-6]
