import torch
import torch.nn as nn


class Model(nn.Module):
    """Softmax of the scores of real tokens; the buffer has room for more."""

    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(128, 1024)[:, :1000]]


def get_init_inputs():
    return []
