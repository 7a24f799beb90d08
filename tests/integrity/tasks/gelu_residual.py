import torch
import torch.nn as nn


class Model(nn.Module):
    """Bias, GELU in its tanh form, residual."""

    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features) * 0.1)

    def forward(self, x, residual):
        return nn.functional.gelu(x + self.bias, approximate="tanh") + residual


def get_inputs():
    return [torch.randn(2, 80, 320), torch.randn(2, 80, 320)]


def get_init_inputs():
    return [320]
