"""Bytes of an image graded: display curve undone, colours mixed, contrast, display curve again.

An image pipeline's inner loop. Every step is per pixel and the matrix is three by three: all of it
fits between reading three bytes and writing three floats.
"""

import torch
from torch import nn

BATCH = 16
HEIGHT = 1024
WIDTH = 1024


class Model(nn.Module):
    """`uint8` sRGB to graded sRGB in `0 .. 1`."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.eye(3) + 0.1 * torch.randn(3, 3))
        self.exposure = nn.Parameter(0.2 * torch.randn(3))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = image.float() / 255
        x = torch.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
        x = x * torch.exp2(self.exposure)
        x = (x @ self.mix).clamp(min=1e-4)
        x = x / (x + 0.2)
        return 1.055 * x ** (1 / 2.4) - 0.055


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, 256, (BATCH, HEIGHT, WIDTH, 3), dtype=torch.uint8)]


def get_init_inputs() -> list[int]:
    return []
