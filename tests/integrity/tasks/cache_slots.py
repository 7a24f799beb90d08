import torch
import torch.nn as nn


class Model(nn.Module):
    """Writes new keys into slots of a cache."""

    def forward(self, cache, k, slots):
        out = cache.clone()
        out[slots] = k * 0.125
        return out


def get_inputs():
    return [torch.randn(1024, 64), torch.randn(256, 64), torch.randperm(1024)[:256]]


def get_init_inputs():
    return []
