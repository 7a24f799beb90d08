import cuda_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        cuda_extension.add_relu(x, y, out, x.numel(), self.scale)
        return out
