import torch
import torch.nn as nn


class Model(nn.Module):
    """Replaces what is not finite, then standardises rows."""

    def forward(self, x):
        x = torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-12)


def get_inputs():
    return [torch.randn(64, 300)]


def get_init_inputs():
    return []
