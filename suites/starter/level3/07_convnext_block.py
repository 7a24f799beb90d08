"""A ConvNeXt block: wide depthwise convolution, norm over channels, MLP, scaled residual.

The convolution wants channels first, the norm and the MLP want them last: eager permutes twice.
The depthwise part is a 49-tap stencil; the two products are most of the arithmetic.
"""

import torch
from torch import nn
from torch.nn import functional

BATCH = 32
CHANNELS = 128
SIZE = 40
TAPS = 7


class Model(nn.Module):
    """`x + scale * mlp(layer_norm(depthwise(x)))`."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, taps, padding=taps // 2, groups=channels)
        self.norm = nn.LayerNorm(channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.3)
        self.expand = nn.Linear(channels, 4 * channels)
        self.reduce = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(0.5 + torch.rand(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.reduce(functional.gelu(self.expand(y)))
        return x + y.permute(0, 3, 1, 2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return [CHANNELS, TAPS]
