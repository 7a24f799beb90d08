"""One time step of the Gray-Scott reaction between two chemicals on a periodic grid.

Explicit schemes for partial differential equations look like this: a five-point stencil on each
field and a pointwise reaction. Eager moves dozens of grids; four are enough.
"""

import torch
from torch import nn

GRIDS = 16
SIZE = 1024


def laplacian(x: torch.Tensor) -> torch.Tensor:
    """Sum of the four neighbours less four times the middle, periodic in both directions."""
    neighbours = x.roll(1, -1) + x.roll(-1, -1) + x.roll(1, -2) + x.roll(-1, -2)
    return neighbours - 4 * x


class Model(nn.Module):
    """`u` is fed and eaten, `v` eats and decays; both diffuse."""

    def __init__(self, feed: float, decay: float, step: float) -> None:
        super().__init__()
        self.feed = feed
        self.decay = decay
        self.step = step

    def forward(self, u: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        eaten = u * v * v
        du = 0.16 * laplacian(u) - eaten + self.feed * (1 - u)
        dv = 0.08 * laplacian(v) + eaten - (self.feed + self.decay) * v
        return u + self.step * du, v + self.step * dv


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(GRIDS, SIZE, SIZE), 0.5 * torch.rand(GRIDS, SIZE, SIZE)]


def get_init_inputs() -> list[float]:
    return [0.035, 0.065, 1.0]
