import torch
import torch.nn as nn


class Model(nn.Module):
    """A product of complex numbers with a filter, and its power."""

    def __init__(self, size):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(size, dtype=torch.complex64))

    def forward(self, x):
        y = x * self.filter
        return y, y.real.square() + y.imag.square()


def get_inputs():
    return [torch.randn(24, 500, dtype=torch.complex64)]


def get_init_inputs():
    return [500]
