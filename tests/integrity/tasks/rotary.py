import torch
import torch.nn as nn


class Model(nn.Module):
    """Rotary position embedding of queries and keys, halves rotated."""

    def __init__(self, head_size, base=10000.0):
        super().__init__()
        powers = torch.arange(0, head_size, 2).float() / head_size
        self.register_buffer("inv_freq", 1.0 / base**powers, persistent=False)

    def forward(self, q, k):
        positions = torch.arange(q.shape[-2], device=q.device).float()
        angles = torch.outer(positions, self.inv_freq)
        cos = torch.cat((angles, angles), dim=-1).cos()
        sin = torch.cat((angles, angles), dim=-1).sin()
        return q * cos + self.rotate(q) * sin, k * cos + self.rotate(k) * sin

    @staticmethod
    def rotate(x):
        left, right = x.chunk(2, dim=-1)
        return torch.cat((-right, left), dim=-1)


def get_inputs():
    return [torch.randn(2, 4, 60, 32), torch.randn(2, 2, 60, 32)]


def get_init_inputs():
    return [32]
