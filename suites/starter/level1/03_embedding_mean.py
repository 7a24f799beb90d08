"""Bags of ids as the mean of their embeddings.

The first layer of a recommender's item history, and of fastText.
Eager writes the embedding of every id before it averages them; only the means need to be written.
"""

import torch
from torch import nn

ITEMS = 200000
FEATURES = 128
BAGS = 65536
BAG_SIZE = 16


class Model(nn.Module):
    """Mean over each bag of rows of a table."""

    def __init__(self, items: int, features: int) -> None:
        super().__init__()
        self.table = nn.Embedding(items, features)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids).mean(dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randint(0, ITEMS, (BAGS, BAG_SIZE))]


def get_init_inputs() -> list[int]:
    return [ITEMS, FEATURES]
