"""The second half of an attention block: weights from scores, values, heads merged, residual.

What follows the scores: a softmax over the keys, a batch of products with the values, the output
projection over all heads, and a scaled residual. The merge of the heads is a view that a product
can read in place.
"""

import torch
from torch import nn

BATCH = 8
HEADS = 16
LENGTH = 512
HEAD_FEATURES = 64


class Model(nn.Module):
    """`residual + scale * project(merge(softmax(scores) values))`."""

    def __init__(self, heads: int, head_features: int) -> None:
        super().__init__()
        features = heads * head_features
        self.project = nn.Linear(features, features)
        self.scale = nn.Parameter(0.5 + 0.5 * torch.rand(features))

    def forward(
        self, scores: torch.Tensor, values: torch.Tensor, residual: torch.Tensor
    ) -> torch.Tensor:
        mixed = torch.softmax(scores, dim=-1) @ values
        merged = mixed.transpose(1, 2).flatten(2)
        return residual + self.scale * self.project(merged)


def get_inputs() -> list[torch.Tensor]:
    scores = 2 * torch.randn(BATCH, HEADS, LENGTH, LENGTH)
    values = torch.randn(BATCH, HEADS, LENGTH, HEAD_FEATURES)
    return [scores, values, torch.randn(BATCH, LENGTH, HEADS * HEAD_FEATURES)]


def get_init_inputs() -> list[int]:
    return [HEADS, HEAD_FEATURES]
