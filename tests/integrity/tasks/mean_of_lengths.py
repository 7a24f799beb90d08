import torch
import torch.nn as nn


class Model(nn.Module):
    """Mean of the first so many tokens of each sequence."""

    def forward(self, x, lengths):
        keep = torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)
        return (x * keep.unsqueeze(-1)).sum(1) / lengths.unsqueeze(1)


def get_inputs():
    return [torch.randn(16, 128, 96), torch.full((16,), 128)]


def get_init_inputs():
    return []
