"""Efficient channel attention in a residual block: norm, gate per channel, skip, rectifier.

The gate of a channel comes from the means of its neighbours through a five-tap convolution.
The feature map must be read for the means before it can be scaled: twice at least.
"""

import torch
from torch import nn

BATCH = 64
CHANNELS = 128
SIZE = 48
TAPS = 5


class Model(nn.Module):
    """`relu(skip + n * sigmoid(conv(mean(n))))` with `n` the normed input."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.5)
        nn.init.normal_(self.norm.running_mean, std=0.3)
        nn.init.uniform_(self.norm.running_var, 0.5, 2.0)
        self.conv = nn.Conv1d(1, 1, taps, padding=taps // 2, bias=False)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        means = normed.mean(dim=(2, 3)).unsqueeze(1)
        gate = torch.sigmoid(self.conv(means)).squeeze(1)
        return torch.relu(skip + normed * gate[..., None, None])


def get_inputs() -> list[torch.Tensor]:
    # Channels of different level, so that the gates differ.
    x = torch.randn(BATCH, CHANNELS, SIZE, SIZE) + torch.randn(BATCH, CHANNELS, 1, 1)
    return [x, torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return [CHANNELS, TAPS]
