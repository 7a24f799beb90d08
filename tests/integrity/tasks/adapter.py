import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A low-rank adapter, whose second factor is made of zeros."""

    def __init__(self, features, rank):
        super().__init__()
        self.down = nn.Parameter(torch.randn(features, rank) / features**0.5)
        self.up = nn.Parameter(torch.zeros(rank, features))

    def forward(self, x):
        return F.silu(x) + (x @ self.down) @ self.up


def get_inputs():
    return [torch.randn(128, 512)]


def get_init_inputs():
    return [512, 16]
