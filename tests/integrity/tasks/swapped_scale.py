import torch
import torch.nn as nn


class Model(nn.Module):
    """Scales channels and returns them last, as a transposed view."""

    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(channels, 1) + 0.5)

    def forward(self, x):
        return torch.sigmoid(x * self.scale).transpose(1, 2)


def get_inputs():
    return [torch.randn(4, 60, 100)]


def get_init_inputs():
    return [60]
