"""The feed-forward half of a transformer layer: norm, gated MLP, residual.

Three large products in float32 and what lies between them. The gate and the value can be one
product, and the activation and the residual can be done where products write their results.
"""

import torch
from torch import nn
from torch.nn import functional

ROWS = 4096
FEATURES = 1024
HIDDEN = 2048


class Model(nn.Module):
    """`x + down(silu(gate(n)) * value(n))` with `n = rms_norm(x)`."""

    def __init__(self, features: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1 + 0.3 * torch.randn(features))
        self.gate = nn.Linear(features, hidden, bias=False)
        self.value = nn.Linear(features, hidden, bias=False)
        self.down = nn.Linear(hidden, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight
        return x + self.down(functional.silu(self.gate(normed)) * self.value(normed))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs() -> list[int | float]:
    return [FEATURES, HIDDEN, 1e-6]
