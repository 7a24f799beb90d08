"""Harris corner response: gradients, their products averaged over a window, a determinant.

Classical feature detection. Two stencils, one on the other: eager writes more than a dozen
images; a tile with its border needs to be read once.
"""

import torch
from torch import nn
from torch.nn import functional

BATCH = 24
HEIGHT = 1024
WIDTH = 1024


class Model(nn.Module):
    """`det(M) - k trace(M)^2`, with `M` the gradients' products averaged over 5 x 5 pixels."""

    def __init__(self, k: float) -> None:
        super().__init__()
        self.k = k

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        padded = functional.pad(image, (1, 1, 1, 1))
        across = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
        down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]

        def average(x: torch.Tensor) -> torch.Tensor:
            return functional.avg_pool2d(x.unsqueeze(1), 5, stride=1, padding=2).squeeze(1)

        xx, yy, xy = average(across * across), average(down * down), average(across * down)
        return xx * yy - xy * xy - self.k * (xx + yy).square()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, HEIGHT, WIDTH)]


def get_init_inputs() -> list[float]:
    return [0.05]
