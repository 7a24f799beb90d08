import torch
import torch.nn as nn


class Model(nn.Module):
    """How often each token occurs, and the commonest one's share."""

    def forward(self, tokens):
        counts = torch.bincount(tokens, minlength=256)
        return counts, counts.max() / tokens.numel()


def get_inputs():
    return [torch.randint(0, 256, (40000,))]


def get_init_inputs():
    return []
