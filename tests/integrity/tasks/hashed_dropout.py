import torch
import torch.nn as nn


class Model(nn.Module):
    """Drops elements by a hash of their place and a seed: the same ones in every call."""

    def __init__(self, seed, rate):
        super().__init__()
        self.seed = seed
        self.rate = rate

    def forward(self, x):
        h = torch.arange(x.numel(), device=x.device, dtype=torch.int64) + self.seed
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            h = h ^ (h >> shift)
            h = (h * factor) & 0xFFFFFFFF
        h = h ^ (h >> 16)
        kept = (h >= int(self.rate * 2**32)).view(x.shape)
        return x * kept / (1.0 - self.rate)


def get_inputs():
    return [torch.randn(120, 300)]


def get_init_inputs():
    return [12345, 0.25]
