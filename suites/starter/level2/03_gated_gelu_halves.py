"""GEGLU: one half of a projection, with its bias and GELU, gates the other half.

The middle of a gated feed-forward network whose two projections were done as one product.
Eager writes the biased input whole, then the activation, then the product; reading the input and
writing half as much is what it takes.
"""

import torch
from torch import nn
from torch.nn import functional

ROWS = 8192
HIDDEN = 4096


class Model(nn.Module):
    """`(value + bias_v) * gelu(gate + bias_g)`."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(0.5 * torch.randn(2 * hidden))

    def forward(self, projected: torch.Tensor) -> torch.Tensor:
        value, gate = (projected + self.bias).chunk(2, dim=-1)
        return value * functional.gelu(gate, approximate="tanh")


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, 2 * HIDDEN)]


def get_init_inputs() -> list[int]:
    return [HIDDEN]
