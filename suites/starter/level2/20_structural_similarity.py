"""Structural similarity of two images, as a map.

The loss and the measure of image restoration. Five averages over the same windows, and a ratio of
their combinations: eager writes every product, every average and every step of the ratio.
"""

import torch
from torch import nn
from torch.nn import functional

BATCH = 8
COLOURS = 3
SIZE = 640


class Model(nn.Module):
    """SSIM over 7 x 7 windows, constants for values in `0 .. 1`."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        def average(z: torch.Tensor) -> torch.Tensor:
            return functional.avg_pool2d(z, self.window, stride=1)

        mean_x, mean_y = average(x), average(y)
        variance_x = average(x * x) - mean_x * mean_x
        variance_y = average(y * y) - mean_y * mean_y
        covariance = average(x * y) - mean_x * mean_y
        alike = (2 * mean_x * mean_y + 1e-4) * (2 * covariance + 9e-4)
        return alike / ((mean_x**2 + mean_y**2 + 1e-4) * (variance_x + variance_y + 9e-4))


def get_inputs() -> list[torch.Tensor]:
    clean = torch.rand(BATCH, COLOURS, SIZE, SIZE)
    noisy = (clean + 0.2 * torch.randn(BATCH, COLOURS, SIZE, SIZE)).clamp(0.0, 1.0)
    return [clean, noisy]


def get_init_inputs() -> list[int]:
    return [7]
