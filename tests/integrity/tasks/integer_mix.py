import torch
import torch.nn as nn


class Model(nn.Module):
    """Integers of 32 bits that wrap, and a comparison of them."""

    def forward(self, a, b):
        mixed = (a * 1664525 + b) ^ (a >> 7)
        return mixed, (mixed & 255).to(torch.uint8), mixed > b


def get_inputs():
    whole = [torch.randint(-(2**31), 2**31 - 1, (30, 333)) for _ in range(2)]
    return [tensor.to(torch.int32) for tensor in whole]


def get_init_inputs():
    return []
