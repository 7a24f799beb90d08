"""A matrix product whose columns are summed at once: a dot product in disguise."""

import torch
from torch import nn

ROWS = 512
IN_FEATURES = 1024
OUT_FEATURES = 1024


class Model(nn.Module):
    """Product with a weight, halved, summed over its columns, scaled."""

    def __init__(self, in_features: int, out_features: int, scale: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features))
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = torch.matmul(x, self.weight.T) / 2
        return torch.sum(product, dim=1, keepdim=True) * self.scale


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, IN_FEATURES)]


def get_init_inputs() -> list[float]:
    return [IN_FEATURES, OUT_FEATURES, 1.5]
