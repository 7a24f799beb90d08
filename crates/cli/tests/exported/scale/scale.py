"""A step: `x * x * weight` and its gradients."""

import torch
from torch import nn

backward = True


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x * self.weight


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(24, 64)]
