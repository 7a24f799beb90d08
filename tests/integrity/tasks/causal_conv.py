import torch
import torch.nn as nn


class Model(nn.Module):
    """Depthwise causal convolution along time, then SiLU."""

    def __init__(self, channels, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, width) * 0.5)
        self.bias = nn.Parameter(torch.randn(channels) * 0.1)

    def forward(self, x):
        width = self.weight.shape[-1]
        padded = nn.functional.pad(x, (width - 1, 0))
        y = nn.functional.conv1d(padded, self.weight, self.bias, groups=x.shape[1])
        return nn.functional.silu(y)


def get_inputs():
    return [torch.randn(2, 48, 300)]


def get_init_inputs():
    return [48, 4]
