import torch
import torch.nn as nn


class Model(nn.Module):
    """An input that is transposed in memory, normalised along its contiguous dimension."""

    def forward(self, x):
        return x / x.abs().sum(dim=0, keepdim=True).clamp(min=1e-3)


def get_inputs():
    return [torch.randn(150, 96).t()]


def get_init_inputs():
    return []
