"""A decoder's step up in resolution: upsample, join the skip, convolve, norm by groups, SiLU.

The expanding half of image-to-image networks. Upsampling by repetition and joining are index
arithmetic that eager writes to memory; the norm needs its statistics before the activation.
"""

import torch
from torch import nn
from torch.nn import functional

BATCH = 8
DEEP_CHANNELS = 64
SKIP_CHANNELS = 32
SIZE = 64
GROUPS = 8


class Model(nn.Module):
    """`silu(group_norm(conv(cat(upsample(deep), skip))))`."""

    def __init__(self, deep: int, skip: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(deep + skip, deep, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(groups, deep)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.3)

    def forward(self, deep: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        larger = functional.interpolate(deep, scale_factor=2, mode="nearest")
        joined = torch.cat([larger, skip], dim=1)
        return functional.silu(self.norm(self.conv(joined)))


def get_inputs() -> list[torch.Tensor]:
    deep = torch.randn(BATCH, DEEP_CHANNELS, SIZE, SIZE)
    return [deep, torch.randn(BATCH, SKIP_CHANNELS, 2 * SIZE, 2 * SIZE)]


def get_init_inputs() -> list[int]:
    return [DEEP_CHANNELS, SKIP_CHANNELS, GROUPS]
