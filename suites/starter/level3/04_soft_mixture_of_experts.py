"""A mixture of experts in which every token goes through every expert, weighted by a gate.

The dense form of a mixture layer, as trained before sparsity sets in. Two batches of products, and
a weighted sum over experts that can be part of the second.
"""

import torch
from torch import nn
from torch.nn import functional

TOKENS = 8192
FEATURES = 512
HIDDEN = 512
EXPERTS = 8


class Model(nn.Module):
    """`sum_e softmax(gate(x))_e * relu(x up_e)^2 down_e`."""

    def __init__(self, features: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(features, experts)
        self.up = nn.Parameter(torch.randn(experts, features, hidden) * features**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, features) * hidden**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share = torch.softmax(self.gate(x), dim=-1)
        hidden = functional.relu(torch.matmul(x, self.up)).square()
        each = torch.bmm(hidden, self.down)
        return (each * share.T.unsqueeze(-1)).sum(dim=0)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, FEATURES)]


def get_init_inputs() -> list[int]:
    return [FEATURES, HIDDEN, EXPERTS]
