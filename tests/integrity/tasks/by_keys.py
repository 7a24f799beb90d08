import torch
import torch.nn as nn


class Model(nn.Module):
    """Values in the order of their keys."""

    def forward(self, keys, v):
        return v.gather(1, keys.argsort(1))


def get_inputs():
    return [torch.randn(1024, 32), torch.randn(1024, 32)]


def get_init_inputs():
    return []
