import torch
import torch.nn as nn


class Model(nn.Module):
    """Adds to the residual in place, then normalises it by its root mean square."""

    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x, residual):
        residual.add_(x)
        scale = torch.rsqrt(residual.pow(2).mean(-1, keepdim=True) + self.eps)
        return residual * scale * self.weight


def get_inputs():
    return [torch.randn(64, 256), torch.randn(64, 256)]


def get_init_inputs():
    return [256]
