import torch
import torch.nn as nn


class Model(nn.Module):
    """Gini coefficients of rows, and their deciles."""

    def forward(self, x):
        s = torch.sort(x, dim=-1).values
        n = x.shape[-1]
        rank = torch.arange(1, n + 1, device=x.device, dtype=x.dtype)
        gini = 2 * (s * rank).sum(-1) / (n * s.sum(-1)) - (n + 1) / n
        return gini, s[:, n // 16 :: n // 8]


def get_inputs():
    return [torch.sort(torch.rand(64, 512), dim=-1).values]


def get_init_inputs():
    return []
