"""Coefficient of variation of every feature of a table: its deviation over its mean.

A step of feature selection. Both statistics go down the columns of a row-major table, where
neighbouring threads must take neighbouring columns; one reading of the table gives both.
"""

import torch
from torch import nn

ROWS = 65536
FEATURES = 1024


class Model(nn.Module):
    """`std(x) / mean(x)` over the rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        deviation, mean = torch.std_mean(x, dim=0)
        return deviation / mean


def get_inputs() -> list[torch.Tensor]:
    # Features of different scale and spread, all of them positive in the mean.
    scale = 1 + 9 * torch.rand(FEATURES)
    spread = 0.2 + torch.rand(FEATURES)
    return [scale * (1 + spread * torch.randn(ROWS, FEATURES))]


def get_init_inputs() -> list[int]:
    return []
