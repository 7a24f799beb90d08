import torch
import torch.nn as nn


class Model(nn.Module):
    """Dense gates from chosen experts and their scores."""

    def forward(self, w, idx):
        g = torch.zeros(w.shape[0], 8, device=w.device, dtype=w.dtype)
        return g.scatter(1, idx, w.softmax(-1))


def get_inputs():
    return [torch.randn(4096, 2), torch.rand(4096, 8).topk(2, -1).indices]


def get_init_inputs():
    return []
