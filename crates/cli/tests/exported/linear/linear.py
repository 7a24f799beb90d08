"""A linear layer that also returns the sums of its rows."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, taken: int, given: int) -> None:
        super().__init__()
        self.linear = nn.Linear(taken, given)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(x)
        return y, y.sum(dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(64, 128)]


def get_init_inputs() -> list[int]:
    return [128, 96]
