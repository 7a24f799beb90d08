import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Pointwise feed-forward in bfloat16 with layer scale and residual, as of CaiT."""

    def __init__(self, features, init=1e-4):
        super().__init__()
        self.norm = nn.LayerNorm(features).bfloat16()
        self.up = nn.Linear(features, 4 * features).bfloat16()
        self.down = nn.Linear(4 * features, features).bfloat16()
        self.init = init

    def forward(self, x):
        return x + self.init * self.down(F.gelu(self.up(self.norm(x))))


def get_inputs():
    return [torch.randn(64, 96).to(torch.bfloat16)]


def get_init_inputs():
    return [96]
