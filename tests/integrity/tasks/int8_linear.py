import torch
import torch.nn as nn


class Model(nn.Module):
    """A product of 8-bit integers, dequantised by row and column."""

    def __init__(self, inputs, outputs):
        super().__init__()
        weight = torch.randint(-127, 128, (outputs, inputs), dtype=torch.int8)
        self.register_buffer("weight", weight)
        self.scale = nn.Parameter(torch.rand(outputs) * 0.01 + 0.005)

    def forward(self, x, x_scale):
        product = x.float() @ self.weight.float().t()
        return product * x_scale * self.scale


def get_inputs():
    return [torch.randint(-127, 128, (48, 128), dtype=torch.int8), torch.rand(48, 1) * 0.1 + 0.01]


def get_init_inputs():
    return [128, 64]
