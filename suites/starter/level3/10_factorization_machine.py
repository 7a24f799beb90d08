"""A factorisation machine: first-order weights and all pairwise products of sparse features.

The classic of click prediction. Two gathers by the same ids; the pairs are a square of a sum less
a sum of squares, so a sample's rows are read once and one number is written.
"""

import torch
from torch import nn

ITEMS = 2000000
FEATURES = 16
SAMPLES = 65536
FIELDS = 39


class Model(nn.Module):
    """`sigmoid(b + sum_i w_i + (|sum_i v_i|^2 - sum_i |v_i|^2) / 2)`."""

    def __init__(self, items: int, features: int) -> None:
        super().__init__()
        self.first = nn.Embedding(items, 1)
        nn.init.normal_(self.first.weight, std=0.1)
        self.second = nn.Embedding(items, features)
        nn.init.normal_(self.second.weight, std=0.05)
        self.bias = nn.Parameter(torch.randn(1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        linear = self.first(ids).sum(dim=(1, 2))
        vectors = self.second(ids)
        pairs = vectors.sum(dim=1).square() - vectors.square().sum(dim=1)
        return torch.sigmoid(self.bias + linear + 0.5 * pairs.sum(dim=-1))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, ITEMS, (SAMPLES, FIELDS))]


def get_init_inputs() -> list[int]:
    return [ITEMS, FEATURES]
