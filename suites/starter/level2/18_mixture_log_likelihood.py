"""Log-likelihood of a value under a mixture of Gaussians whose parameters a network predicted.

The output layer of a mixture density network. Three tensors of short rows, one number per row:
a thread or a few per row, and no intermediate in memory.
"""

import math

import torch
from torch import nn

SAMPLES = 1048576
COMPONENTS = 16


class Model(nn.Module):
    """`logsumexp(log_softmax(logit) + log N(y; mean, exp(log_scale)))`."""

    def forward(
        self,
        logit: torch.Tensor,
        mean: torch.Tensor,
        log_scale: torch.Tensor,
        y: torch.Tensor,
    ) -> torch.Tensor:
        log_weight = torch.log_softmax(logit, dim=-1)
        z = (y.unsqueeze(-1) - mean) * torch.exp(-log_scale)
        log_density = -0.5 * z.square() - log_scale - 0.5 * math.log(2 * math.pi)
        return torch.logsumexp(log_weight + log_density, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    shape = (SAMPLES, COMPONENTS)
    log_scale = 0.3 * torch.randn(shape)
    return [torch.randn(shape), 2 * torch.randn(shape), log_scale, 2 * torch.randn(SAMPLES)]


def get_init_inputs() -> list[int]:
    return []
