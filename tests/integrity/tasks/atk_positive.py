import torch
import torch.nn as nn


class Model(nn.Module):
    """Guards that inputs of the task never need: all of them lie between nought and one."""

    def forward(self, x):
        return torch.log1p(x.abs()).clamp(max=2.0)


def get_inputs():
    return [torch.rand(300, 500)]


def get_init_inputs():
    return []
