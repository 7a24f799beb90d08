import torch
import torch.nn as nn


class Model(nn.Module):
    """A product whose columns have scales of a fixed table, each half the one before."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.register_buffer("scale", 0.5 ** (torch.arange(outputs) % 12).float())

    def forward(self, x):
        return (x @ self.weight.t()) * self.scale


def get_inputs():
    return [torch.randn(64, 192)]


def get_init_inputs():
    return [192, 96]
