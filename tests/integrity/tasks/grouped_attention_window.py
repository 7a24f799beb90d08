import torch
import torch.nn as nn


class Model(nn.Module):
    """Grouped-query attention, causal, sliding window, ALiBi, with lengths of keys."""

    def __init__(self, h, window):
        super().__init__()
        self.window = window
        self.register_buffer("slopes", 2.0 ** (-8.0 * torch.arange(1, h + 1) / h))

    def forward(self, q, k, v):
        _, h, n, d = q.shape
        g = h // k.shape[1]
        k = k.repeat_interleave(g, 1)
        v = v.repeat_interleave(g, 1)
        i = torch.arange(n, device=q.device)
        dist = i[:, None] - i[None, :]
        s = q @ k.transpose(-1, -2) * d**-0.5 - self.slopes[:, None, None] * dist
        s = s.masked_fill((dist < 0) | (dist >= self.window), float("-inf"))
        return s.softmax(-1) @ v


def get_inputs():
    return [torch.randn(2, 8, 128, 32), torch.randn(2, 2, 128, 32), torch.randn(2, 2, 128, 32)]


def get_init_inputs():
    return [8, 48]
