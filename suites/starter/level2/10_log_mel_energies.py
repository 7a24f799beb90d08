"""Log-mel energies from a complex spectrum: what a speech recogniser listens to.

Power, a matrix product with the mel filters, a logarithm, and a floor 8 decades under the loudest
band of the clip. The product is narrow: the power can be made while its operand is loaded.
"""

import torch
from torch import nn

CLIPS = 64
FRAMES = 512
BINS = 400
BANDS = 80


class Model(nn.Module):
    """`max(l, max(l) - 8)` with `l = log10(|spectrum|^2 filters)`, shifted and scaled."""

    def __init__(self, bins: int, bands: int) -> None:
        super().__init__()
        # Overlapping triangles, and a little everywhere else: filters that were trained further.
        centre = torch.linspace(0, bins - 1, bands + 2)[1:-1]
        distance = (torch.arange(bins).unsqueeze(-1) - centre).abs()
        triangles = (1 - distance / (1.5 * bins / bands)).clamp(min=0)
        self.filters = nn.Parameter(
            triangles * (0.5 + torch.rand(bands)) + 0.02 * torch.rand(bins, bands)
        )

    def forward(self, real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
        power = real.square() + imaginary.square()
        # Trained filters may be negative: energies are not.
        energy = torch.log10((power @ self.filters.abs()).clamp(min=1e-10))
        loudest = energy.amax(dim=(1, 2), keepdim=True)
        return (torch.maximum(energy, loudest - 8.0) + 4.0) / 4.0


def get_inputs() -> list[torch.Tensor]:
    # Frames from near silence to loud: over ten decades of power, so that the floor is reached.
    loudness = 10 ** (-6 + 6 * torch.rand(CLIPS, FRAMES, 1))
    shape = (CLIPS, FRAMES, BINS)
    return [loudness * torch.randn(shape), loudness * torch.randn(shape)]


def get_init_inputs() -> list[int]:
    return [BINS, BANDS]
