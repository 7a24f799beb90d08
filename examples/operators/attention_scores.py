"""Batched products between two matrices per head, scaled and turned into probabilities."""

import torch
from torch import nn

HEADS = 64
LENGTH = 512
FEATURES = 64


class Model(nn.Module):
    """`softmax(q k^T / sqrt(d))`."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.scale = features**-0.5

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.bmm(q, k.transpose(1, 2)) * self.scale, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(HEADS, LENGTH, FEATURES), torch.randn(HEADS, LENGTH, FEATURES)]


def get_init_inputs() -> list[int]:
    return [FEATURES]
