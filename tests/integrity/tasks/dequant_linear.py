import torch
import torch.nn as nn


class Model(nn.Module):
    """Dequantises an 8-bit weight by scale and zero point, then a linear layer."""

    def __init__(self, inputs, outputs):
        super().__init__()
        weight = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8)
        self.register_buffer("weight", weight)
        self.register_buffer("zero_point", torch.zeros(outputs, 1, dtype=torch.int32))
        self.register_buffer("scale", torch.full((outputs, 1), 0.01))

    def forward(self, x):
        w = (self.weight.float() - self.zero_point) * self.scale
        return x @ w.t()


def get_inputs():
    return [torch.randn(48, 128)]


def get_init_inputs():
    return [128, 64]
