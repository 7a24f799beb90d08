import torch
import torch.nn as nn


class Model(nn.Module):
    """Max pooling with indices, and average pooling that does not count its padding."""

    def forward(self, x):
        largest, where = nn.functional.max_pool2d(x, 3, stride=2, padding=1, return_indices=True)
        mean = nn.functional.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)
        return largest, where, mean


def get_inputs():
    return [torch.randn(3, 8, 25, 25)]


def get_init_inputs():
    return []
