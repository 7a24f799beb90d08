import cuda_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        cuda_extension.forward(x, self.weight, y, x.numel(), 64)
        self.saved = x
        return y

    def backward(self, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.saved
        of_x, of_weight = torch.empty_like(x), torch.empty_like(self.weight)
        cuda_extension.backward(x, self.weight, grad, of_x, of_weight, x.shape[0], 64)
        return of_x, of_weight
