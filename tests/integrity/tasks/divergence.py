import torch
import torch.nn as nn


class Model(nn.Module):
    """Divergence of two distributions, each normalised first."""

    def forward(self, p, q):
        p = p / p.sum(-1, keepdim=True)
        q = q / q.sum(-1, keepdim=True)
        return (p * (torch.log(p + 1e-9) - torch.log(q + 1e-9))).sum(-1)


def get_inputs():
    return [torch.softmax(torch.randn(128, 256), -1), torch.softmax(torch.randn(128, 256), -1)]


def get_init_inputs():
    return []
