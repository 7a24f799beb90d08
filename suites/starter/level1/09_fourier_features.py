"""Positional encoding of points in space: each coordinate, and its sines and cosines at octaves.

The input layer of a neural radiance field. The result is seventeen times the input, so this writes;
eager writes the angles, the sines and the cosines first and joins them afterwards.
"""

import torch
from torch import nn

POINTS = 1048576
OCTAVES = 8


class Model(nn.Module):
    """`[x, sin(2^k pi x), cos(2^k pi x)]` for `k = 0 .. octaves - 1`."""

    def __init__(self, octaves: int) -> None:
        super().__init__()
        self.register_buffer("frequency", torch.pi * 2.0 ** torch.arange(octaves))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        angle = (points.unsqueeze(-1) * self.frequency).flatten(1)
        return torch.cat([points, angle.sin(), angle.cos()], dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [2 * torch.rand(POINTS, 3) - 1]


def get_init_inputs() -> list[int]:
    return [OCTAVES]
