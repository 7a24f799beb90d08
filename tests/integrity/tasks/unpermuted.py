import torch
import torch.nn as nn


class Model(nn.Module):
    """Tokens back in their order, scaled (the end of an MoE layer)."""

    def forward(self, x, perm, gate):
        return x[torch.argsort(perm)] * gate[:, None]


def get_inputs():
    return [torch.randn(2048, 32), torch.randperm(2048), torch.rand(2048)]


def get_init_inputs():
    return []
