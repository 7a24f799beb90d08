import torch
import torch.nn as nn


class Model(nn.Module):
    """The five largest of each row and their places, as of a sampler."""

    def forward(self, logits):
        values, indices = torch.topk(logits, 5, dim=-1)
        return torch.softmax(values, dim=-1), indices


def get_inputs():
    return [torch.randn(128, 400)]


def get_init_inputs():
    return []
