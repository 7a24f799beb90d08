import torch
import torch.nn as nn


class Model(nn.Module):
    """Three activations of one input."""

    def forward(self, x):
        return [
            nn.functional.leaky_relu(x, 0.1),
            nn.functional.hardswish(x),
            nn.functional.softplus(x),
        ]


def get_inputs():
    return [torch.randn(60000)]


def get_init_inputs():
    return []
