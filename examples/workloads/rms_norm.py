"""RMSNorm with four shapes, as a language model meets it: few rows when it decodes, many in a
prompt."""

from typing import Any

import torch
from torch import nn


class Model(nn.Module):
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dimension."""

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        # Not ones, as a fresh layer has: a kernel that forgets the weight must be wrong.
        self.weight = nn.Parameter(1 + 0.5 * torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight


def get_workloads() -> list[dict[str, Any]]:
    return [
        {"name": "decode 64", "arguments": {"rows": 64}},
        {"name": "decode 200", "arguments": {"rows": 200}},
        {"name": "prompt 1000", "arguments": {"rows": 1000}},
        {"name": "prompt 2048", "arguments": {"rows": 2048}},
    ]


def get_inputs(rows: int = 64) -> list[torch.Tensor]:
    return [torch.randn(rows, 2048)]


def get_init_inputs() -> list[int | float]:
    return [2048, 1e-6]
