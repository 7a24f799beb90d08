"""Pooling over space, then a norm over channels."""

import torch
from torch import nn

BATCH = 32
CHANNELS = 128
SIZE = 64


class Model(nn.Module):
    """`layer_norm` of the flattened result of a max pooling."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel_size=2)
        self.norm = nn.LayerNorm(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.pool(x).flatten(2))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return [SIZE * SIZE // 4]
