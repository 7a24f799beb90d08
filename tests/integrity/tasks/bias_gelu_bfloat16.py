import torch
import torch.nn as nn


class Model(nn.Module):
    """Bias and exact GELU in bfloat16, computed in float32."""

    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features, dtype=torch.bfloat16) * 0.2)

    def forward(self, x):
        return nn.functional.gelu(x.float() + self.bias.float()).to(torch.bfloat16)


def get_inputs():
    return [torch.randn(72, 320).to(torch.bfloat16)]


def get_init_inputs():
    return [320]
