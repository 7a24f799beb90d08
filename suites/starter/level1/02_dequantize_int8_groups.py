"""Weights of a quantised model back to half precision: codes, a scale and a zero point per group.

Inference engines do this before a matrix product that has no quantised kernel.
Eager writes the codes as half precision, then their difference, then the product; bytes in and
half precision out is what it takes.
"""

import torch
from torch import nn

ROWS = 8192
GROUPS = 64
GROUP_SIZE = 128


class Model(nn.Module):
    """`(codes - zero) * scale` with one zero and one scale per row and group."""

    def forward(self, codes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
        rows, groups = scale.shape
        grouped = codes.view(rows, groups, -1).to(scale.dtype)
        return ((grouped - zero.unsqueeze(-1)) * scale.unsqueeze(-1)).flatten(1)


def get_inputs() -> list[torch.Tensor]:
    codes = torch.randint(-128, 128, (ROWS, GROUPS * GROUP_SIZE), dtype=torch.int8)
    scale = (0.01 + 0.05 * torch.rand(ROWS, GROUPS)).to(torch.float16)
    zero = torch.randint(-16, 17, (ROWS, GROUPS)).to(torch.float16)
    return [codes, scale, zero]


def get_init_inputs() -> list[int]:
    return []
