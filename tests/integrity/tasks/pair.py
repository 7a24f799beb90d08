import torch
import torch.nn as nn


class Model(nn.Module):
    """Two outputs of different shapes and dtypes."""

    def forward(self, x):
        return {"sum": x.sum(-1), "largest": x.argmax(-1)}


def get_inputs():
    return [torch.randn(128, 512)]


def get_init_inputs():
    return []
