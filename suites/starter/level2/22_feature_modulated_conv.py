"""A convolution whose channels are scaled and shifted by a condition, then SiLU.

How a time step or a class steers a convolutional denoiser. Scale and shift are per image and
channel: they fit where the convolution writes its result.
"""

import torch
from torch import nn
from torch.nn import functional

BATCH = 32
CHANNELS = 128
SIZE = 64


class Model(nn.Module):
    """`silu(conv(x) (1 + scale) + shift)`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=3, padding=1)

    def forward(self, x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        steered = self.conv(x) * (1 + scale[..., None, None]) + shift[..., None, None]
        return functional.silu(steered)


def get_inputs() -> list[torch.Tensor]:
    scale, shift = 0.3 * torch.randn(BATCH, CHANNELS), 0.5 * torch.randn(BATCH, CHANNELS)
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE), scale, shift]


def get_init_inputs() -> list[int]:
    return [CHANNELS]
