import torch
import torch.nn as nn


class Model(nn.Module):
    """Sums of rows by segment, as of messages in a graph."""

    def __init__(self, segments):
        super().__init__()
        self.segments = segments

    def forward(self, values, segment):
        out = torch.zeros(self.segments, values.shape[1], device=values.device)
        return out.index_add_(0, segment, values)


def get_inputs():
    return [torch.randn(1500, 32), torch.randint(0, 100, (1500,))]


def get_init_inputs():
    return [100]
