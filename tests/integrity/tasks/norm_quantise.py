import torch
import torch.nn as nn


class Model(nn.Module):
    """Residual, RMSNorm and dynamic int8 quantisation by row."""

    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))

    def forward(self, x, r):
        h = x + r
        y = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w
        s = y.abs().amax(-1, keepdim=True).clamp_min(1e-8) / 127.0
        return torch.round(y / s).clamp(-128, 127).to(torch.int8), s, h


def get_inputs():
    return [torch.randn(512, 256), torch.randn(512, 256)]


def get_init_inputs():
    return [256]
