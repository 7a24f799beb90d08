"""A short causal convolution along time, per channel, and SiLU.

State-space models put it before their scan. Four taps over long rows: bound by memory, while
general convolution libraries treat it as compute.
"""

import torch
from torch import nn
from torch.nn import functional

BATCH = 8
CHANNELS = 1536
LENGTH = 2048
TAPS = 4


class Model(nn.Module):
    """Each step sees itself and the `taps - 1` steps before it."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, taps, groups=channels, padding=taps - 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.silu(self.conv(x)[..., : x.shape[-1]])


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS, TAPS]
