import torch
import torch.nn as nn


class Model(nn.Module):
    """Dense gates of the two best of eight experts."""

    def forward(self, logits):
        v, i = logits.topk(2, -1)
        return torch.zeros_like(logits).scatter(-1, i, v.softmax(-1))


def get_inputs():
    return [torch.randn(8192, 8)]


def get_init_inputs():
    return []
