"""A softmax of rows with a temperature."""

import torch
from torch import nn

ROWS = 1024
FEATURES = 512


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.heat = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * self.heat, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs() -> list[int]:
    return [FEATURES]
