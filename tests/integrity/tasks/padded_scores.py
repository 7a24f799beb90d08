import torch
import torch.nn as nn


class Model(nn.Module):
    """Attention probabilities with a key padding mask."""

    def forward(self, scores, mask):
        return torch.softmax(scores.masked_fill(~mask.unsqueeze(1), float("-inf")), dim=-1)


def get_inputs():
    lengths = torch.randint(32, 129, (16, 1))
    return [torch.randn(16, 64, 128), torch.arange(128) < lengths]


def get_init_inputs():
    return []
