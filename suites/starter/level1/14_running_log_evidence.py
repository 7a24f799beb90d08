"""The log of a running sum of exponentials along time.

Forward probabilities and online evidence are kept this way, in logarithms, because the sums
themselves overflow. A scan with an operator that is dearer than a sum.
"""

import torch
from torch import nn

SERIES = 8192
STEPS = 2048


class Model(nn.Module):
    """`log(sum(exp(x[0 .. t])))` for every `t`."""

    def forward(self, log_weights: torch.Tensor) -> torch.Tensor:
        return torch.logcumsumexp(log_weights, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    # Steps of a few nats: now and then one of them outweighs all before it.
    return [3 * torch.randn(SERIES, STEPS)]


def get_init_inputs() -> list[int]:
    return []
