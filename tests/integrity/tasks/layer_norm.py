import torch
import torch.nn as nn


class Model(nn.Module):
    """Layer normalisation with weight and bias."""

    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(4, 24, 384)]


def get_init_inputs():
    return [384]
