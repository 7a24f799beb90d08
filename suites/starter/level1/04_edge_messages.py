"""Messages of a graph network: the source node's features, weighted by the edge.

The gather half of message passing, before the sums per target node.
Eager gathers into a copy, then multiplies that copy.
"""

import torch
from torch import nn

NODES = 100000
EDGES = 500000
FEATURES = 128


class Model(nn.Module):
    """`features[source] * weight`, one row per edge."""

    def forward(
        self, features: torch.Tensor, source: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        return features[source] * weight.unsqueeze(-1)


def get_inputs() -> list[torch.Tensor]:
    features = torch.randn(NODES, FEATURES)
    source = torch.randint(0, NODES, (EDGES,))
    weight = torch.rand(EDGES) + 0.1
    return [features, source, weight]


def get_init_inputs() -> list[int]:
    return []
