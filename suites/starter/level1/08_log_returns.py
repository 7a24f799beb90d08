"""Logarithmic returns of price series: the log of each price over the one before.

The first step of most of quantitative finance, and of any growth rate.
Two shifted views of one input; rows of the result are one shorter, so alignment changes by row.
"""

import torch
from torch import nn

ASSETS = 4096
DAYS = 8192


class Model(nn.Module):
    """`log(p[t + 1] / p[t])`."""

    def forward(self, prices: torch.Tensor) -> torch.Tensor:
        return torch.log(prices[:, 1:] / prices[:, :-1])


def get_inputs() -> list[torch.Tensor]:
    return [100 * torch.exp(0.3 * torch.randn(ASSETS, DAYS))]


def get_init_inputs() -> list[int]:
    return []
