"""Graph attention over a fixed number of neighbours per node.

A projection, a score for every edge from both of its ends, a softmax over a node's neighbours and
a weighted sum of theirs. Eager writes every neighbour's features; a kernel can gather and sum.
"""

import torch
from torch import nn
from torch.nn import functional

NODES = 131072
NEIGHBOURS = 12
FEATURES = 128


class Model(nn.Module):
    """`elu(sum_j a_ij W h_j)` with `a_ij = softmax_j(leaky_relu(s . W h_i + t . W h_j))`."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.project = nn.Linear(features, features, bias=False)
        self.own = nn.Parameter(torch.randn(features) * features**-0.5)
        self.other = nn.Parameter(torch.randn(features) * features**-0.5)

    def forward(self, features: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
        h = self.project(features)
        scores = (h @ self.own).unsqueeze(-1) + (h @ self.other)[neighbours]
        share = torch.softmax(functional.leaky_relu(scores, 0.2), dim=-1)
        return functional.elu((share.unsqueeze(-1) * h[neighbours]).sum(dim=1))


def get_inputs() -> list[torch.Tensor]:
    features = 2 * torch.randn(NODES, FEATURES)
    return [features, torch.randint(0, NODES, (NODES, NEIGHBOURS))]


def get_init_inputs() -> list[int]:
    return [FEATURES]
