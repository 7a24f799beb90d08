"""A linear layer and its activation."""

import torch
from torch import nn

ROWS = 4096
IN_FEATURES = 1024
OUT_FEATURES = 4096


class Model(nn.Module):
    """`gelu(x W^T + b)`."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(self.linear(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, IN_FEATURES)]


def get_init_inputs() -> list[int]:
    return [IN_FEATURES, OUT_FEATURES]
