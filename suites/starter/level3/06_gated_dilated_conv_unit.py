"""One layer of a WaveNet: dilated convolution, gate, and two outputs.

The unit that autoregressive and denoising vocoders stack dozens of times. A convolution along
time, a product of two activations, and pointwise projections to the residual and the skip path.
"""

import torch
from torch import nn

BATCH = 8
CHANNELS = 64
LENGTH = 32768
DILATION = 16


class Model(nn.Module):
    """`x + residual(g)` and `skip(g)` with `g = tanh(f) sigmoid(s)` from one convolution."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, 2 * channels, 3, padding=dilation, dilation=dilation)
        self.residual = nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        content, gate = self.conv(x).chunk(2, dim=1)
        gated = torch.tanh(content) * torch.sigmoid(gate)
        return (x + self.residual(gated)) * 0.5**0.5, self.skip(gated)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, LENGTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS, DILATION]
