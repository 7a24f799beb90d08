"""Camera bytes to the rows that a vision transformer's first layer multiplies.

Bytes become floats, are standardised per colour and laid out one patch a row. Eager writes four
float copies of a byte image; one kernel reads a byte and writes a float.
"""

import torch
from torch import nn

BATCH = 64
COLOURS = 3
SIZE = 512
PATCH = 16


class Model(nn.Module):
    """Standardised patches `[batch, patches, colours * patch * patch]` of `uint8` images."""

    def __init__(self, patch: int) -> None:
        super().__init__()
        self.patch = patch
        # ImageNet's statistics, for bytes.
        mean = torch.tensor([123.675, 116.28, 103.53])
        deviation = torch.tensor([58.395, 57.12, 57.375])
        self.register_buffer("mean", mean.view(1, 3, 1, 1))
        self.register_buffer("deviation", deviation.view(1, 3, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        batch, colours, height, width = image.shape
        rows, columns, p = height // self.patch, width // self.patch, self.patch
        x = (image.float() - self.mean) / self.deviation
        x = x.view(batch, colours, rows, p, columns, p).permute(0, 2, 4, 1, 3, 5)
        return x.reshape(batch, rows * columns, colours * p * p)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, 256, (BATCH, COLOURS, SIZE, SIZE), dtype=torch.uint8)]


def get_init_inputs() -> list[int]:
    return [PATCH]
