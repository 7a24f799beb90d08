import torch
import torch.nn as nn


class Model(nn.Module):
    """Scores with minus infinity above the diagonal, and their logsumexp."""

    def __init__(self, size):
        super().__init__()
        mask = torch.full((size, size), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, scores):
        masked = scores + self.mask
        return masked, torch.logsumexp(masked, dim=-1)


def get_inputs():
    return [torch.randn(6, 72, 72)]


def get_init_inputs():
    return [72]
