import torch
import torch.nn as nn


class Model(nn.Module):
    """Symmetric quantisation of rows to 8 bits."""

    def forward(self, x):
        scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / 127.0
        q = torch.round(x / scale).clamp(-127, 127).to(torch.int8)
        return q, scale


def get_inputs():
    return [torch.randn(80, 256)]


def get_init_inputs():
    return []
