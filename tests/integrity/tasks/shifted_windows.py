import torch
import torch.nn as nn


class Model(nn.Module):
    """Moves values and computes nothing: a pad and an exchange of halves."""

    def forward(self, x):
        padded = nn.functional.pad(x, (2, 2, 1, 1), value=0.5)
        left, right = x.chunk(2, dim=-1)
        return padded, torch.cat((right, left), dim=-1)


def get_inputs():
    return [torch.randn(6, 40, 64)]


def get_init_inputs():
    return []
