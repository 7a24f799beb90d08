import cuda_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        cuda_extension.rms_norm(x, self.weight, y, x.shape[0], x.shape[1], self.eps)
        return y
