"""GEGLU: what one layer says, gated by another's through GELU."""

import torch
from torch import nn
from torch.nn import functional as F

ROWS = 16384
FEATURES = 4096


class Model(nn.Module):
    """`gelu(x) * y`, with the exact GELU."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        gelu = F.gelu(x)
        return gelu * y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, FEATURES), torch.randn(ROWS, FEATURES)]


def get_init_inputs() -> list[int]:
    return []
