"""A gated recurrent layer without a recurrence in time: two scans in logarithms.

The minimal GRU `h_t = (1 - z_t) h_{t-1} + z_t g_t`, solved for all steps at once as its authors
do: a running sum of log decays and a running log-sum-exp. Scans along the middle dimension, with
features beside each other in memory.
"""

import torch
from torch import nn
from torch.nn import functional

BATCH = 32
LENGTH = 512
FEATURES = 512


class Model(nn.Module):
    """All states `h_1 .. h_T` from an initial state and both gates' projections."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.update = nn.Linear(features, features)
        # Memories of a few to some hundred steps.
        nn.init.uniform_(self.update.bias, -5.5, -1.0)
        self.candidate = nn.Linear(features, features)

    def forward(self, x: torch.Tensor, initial: torch.Tensor) -> torch.Tensor:
        update, candidate = self.update(x), self.candidate(x)
        # Candidates are positive: x + 1/2, or sigmoid(x) below zero.
        log_candidate = torch.where(
            candidate >= 0,
            torch.log(functional.relu(candidate) + 0.5),
            -functional.softplus(-candidate),
        )
        log_keep = torch.cumsum(-functional.softplus(update), dim=1)
        log_new = log_candidate - functional.softplus(-update)
        first = torch.log(initial).unsqueeze(1)
        log_terms = torch.cat([first, log_new - log_keep], dim=1)
        log_sum = torch.logcumsumexp(log_terms, dim=1)[:, 1:]
        return torch.exp(log_keep + log_sum)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, LENGTH, FEATURES), 0.5 + torch.rand(BATCH, FEATURES)]


def get_init_inputs() -> list[int]:
    return [FEATURES]
