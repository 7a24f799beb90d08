import torch
import torch.nn as nn


class Model(nn.Module):
    """Flags and counts that are practically always zero, beside what is not."""

    def forward(self, x):
        return torch.isnan(x).any(dim=1), (x > 7.0).sum(dim=1), 2 * x[:, 0]


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []
