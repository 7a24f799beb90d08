"""A diagonal matrix times a full one: a scaling of rows in disguise."""

import torch
from torch import nn

SIZE = 1024


class Model(nn.Module):
    """`diag(a) @ b`."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.diag(a) @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(SIZE), torch.randn(SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return []
