import torch
import torch.nn as nn

backward = True


class Model(nn.Module):
    """RMSNorm, with the gradients of its rows and of its weight."""

    def __init__(self, features: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def get_inputs():
    return [torch.randn(512, 128)]


def get_init_inputs():
    return [128]
