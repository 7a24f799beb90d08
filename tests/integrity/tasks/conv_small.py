import torch
import torch.nn as nn


class Model(nn.Module):
    """A 3 x 3 convolution with padding, then ReLU."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.randn(2, 4, 24, 20)]


def get_init_inputs():
    return [4, 12]
