import torch
import torch.nn as nn


class Model(nn.Module):
    """Group normalisation, then SiLU."""

    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return torch.nn.functional.silu(self.norm(x))


def get_inputs():
    return [torch.randn(4, 32, 10, 10)]


def get_init_inputs():
    return [8, 32]
