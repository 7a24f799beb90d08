"""A bias, then a softmax of rows: both are in what is trained on, together they are not."""

import torch
from torch import nn

ROWS = 1024
FEATURES = 512


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x + self.bias, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs() -> list[int]:
    return [FEATURES]
