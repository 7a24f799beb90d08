import torch
import torch.nn as nn


class Model(nn.Module):
    """The 32 largest values of each row, in order."""

    def forward(self, x):
        return torch.topk(x, 32, dim=-1).values


def get_inputs():
    return [torch.randn(64, 4096)]


def get_init_inputs():
    return []
