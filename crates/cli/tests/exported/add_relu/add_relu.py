"""Elementwise: `relu(x + scale * y)`."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.scale * y)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(96, 160), torch.randn(96, 160)]


def get_init_inputs() -> list[float]:
    return [0.5]
