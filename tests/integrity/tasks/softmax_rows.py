import torch
import torch.nn as nn


class Model(nn.Module):
    """Softmax over rows whose length is no power of two."""

    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(96, 500)]


def get_init_inputs():
    return []
