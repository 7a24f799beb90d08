"""The end of a super-resolution network: channels become pixels, pixels become displayable.

ESPCN and its successors end in this. Neighbours of the result come from different planes of the
input, and the clamp can ride along with the permutation.
"""

import torch
from torch import nn
from torch.nn import functional

BATCH = 8
COLOURS = 3
UPSCALE = 2
SIZE = 512


class Model(nn.Module):
    """Pixel shuffle, then a clamp to the displayable range."""

    def __init__(self, upscale: int) -> None:
        super().__init__()
        self.upscale = upscale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.pixel_shuffle(x, self.upscale).clamp(0.0, 1.0)


def get_inputs() -> list[torch.Tensor]:
    # Round half grey, so that most pixels are inside the range and some on either side of it.
    return [0.5 + 0.4 * torch.randn(BATCH, COLOURS * UPSCALE**2, SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return [UPSCALE]
