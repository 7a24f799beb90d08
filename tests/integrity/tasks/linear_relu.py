import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer with ReLU."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = nn.Linear(inputs, outputs)

    def forward(self, x):
        return torch.relu(self.fc(x))


def get_inputs():
    return [torch.randn(64, 192)]


def get_init_inputs():
    return [192, 96]
