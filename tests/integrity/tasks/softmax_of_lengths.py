import torch
import torch.nn as nn


class Model(nn.Module):
    """Softmax over rows of several lengths."""

    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_workloads():
    return [
        {"name": "short", "arguments": {"length": 128}},
        {"name": "usual", "arguments": {"length": 512}},
        {"name": "odd", "arguments": {"length": 333}, "held_out": True},
    ]


def get_inputs(length=512):
    return [torch.randn(96, length)]


def get_init_inputs():
    return []
