import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer in half precision."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = nn.Linear(inputs, outputs, bias=False, dtype=torch.float16)

    def forward(self, x):
        return self.fc(x)


def get_inputs():
    return [torch.randn(256, 256).half()]


def get_init_inputs():
    return [256, 128]
