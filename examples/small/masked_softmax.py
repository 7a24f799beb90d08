"""Attention weights: scores scaled, masked and turned into probabilities row by row."""

import torch
from torch import nn

BATCH = 1
HEADS = 8
LENGTH = 32
HEAD_FEATURES = 64


class Model(nn.Module):
    """`softmax(scale * scores)` over the last dimension, where `keep` allows it."""

    def __init__(self, head_features: int) -> None:
        super().__init__()
        self.scale = head_features**-0.5

    def forward(self, scores: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        scaled = (scores * self.scale).masked_fill(~keep, float("-inf"))
        return torch.softmax(scaled, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    # Scores as a dot product of unit normal vectors has them: variance HEAD_FEATURES.
    scores = HEAD_FEATURES**0.5 * torch.randn(BATCH, HEADS, LENGTH, LENGTH)
    keep = torch.rand(BATCH, 1, LENGTH, LENGTH) < 0.75
    # A row without any allowed position would be NaN: every position may look at itself.
    keep |= torch.eye(LENGTH, dtype=torch.bool)
    return [scores, keep]


def get_init_inputs() -> list[int]:
    return [HEAD_FEATURES]
