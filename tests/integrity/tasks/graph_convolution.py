import torch
import torch.nn as nn


class Model(nn.Module):
    """A graph convolution on an undirected graph."""

    def __init__(self, d):
        super().__init__()
        self.lin = nn.Linear(d, d)

    def forward(self, x, adj):
        n = adj.shape[0]
        a = adj + torch.eye(n, device=adj.device, dtype=adj.dtype)
        r = a.sum(1).rsqrt()
        return torch.relu(self.lin(r[:, None] * (a @ (r[:, None] * x))))


def get_inputs():
    n = 192
    up = (torch.rand(n, n) < 0.05).float().triu(1)
    return [torch.randn(n, 32), up + up.T]


def get_init_inputs():
    return [32]
