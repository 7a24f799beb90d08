import torch
import torch.nn as nn


class Model(nn.Module):
    """Attention probabilities with an additive bias: ALiBi slopes and a causal mask."""

    def forward(self, scores, bias):
        return torch.softmax(scores + bias, dim=-1)


def get_inputs():
    heads, size = 4, 64
    slopes = torch.tensor([2.0 ** (-2 * (i + 1)) for i in range(heads)]).view(-1, 1, 1)
    at = torch.arange(size)
    bias = slopes * (at.view(1, 1, -1) - at.view(1, -1, 1))
    bias = bias.masked_fill(torch.ones(size, size, dtype=torch.bool).triu(1), float("-inf"))
    return [torch.randn(4, heads, size, size), bias]


def get_init_inputs():
    return []
