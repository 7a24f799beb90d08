import torch
import torch.nn as nn


class Model(nn.Module):
    """Probabilities of classes, added up by group: float32 written out, as many write it."""

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x, group):
        p = torch.softmax(x, dim=-1)
        out = torch.zeros(x.shape[0], self.groups, dtype=torch.float32, device=x.device)
        return out.scatter_add_(1, group, p)


def get_inputs():
    return [torch.randn(128, 400), torch.randint(0, 40, (128, 400))]


def get_init_inputs():
    return [40]
