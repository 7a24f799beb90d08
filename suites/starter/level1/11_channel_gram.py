"""Gram matrices of feature maps: which channels are active together, whatever the place.

What style transfer compares between two images. A batch of products of a matrix with its own
transpose, over a long inner dimension: the result is symmetric, and the input is read once.
"""

import torch
from torch import nn

BATCH = 32
CHANNELS = 256
SIZE = 64


class Model(nn.Module):
    """`f f^T / pixels` per image."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(2)
        return torch.bmm(flat, flat.transpose(1, 2)) / flat.shape[-1]


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return []
