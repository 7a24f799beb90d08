import cuda_extension
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, taken: int, given: int) -> None:
        super().__init__()
        self.linear = nn.Linear(taken, given)

    def prepare(self) -> None:
        weight = self.linear.weight
        self.columns = torch.empty_like(weight).reshape(weight.shape[1], weight.shape[0])
        cuda_extension.transpose(weight, self.columns, weight.shape[0], weight.shape[1])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, taken = x.shape
        given = self.columns.shape[1]
        y = torch.empty(rows, given, device=x.device)
        sums = torch.empty(rows, device=x.device)
        cuda_extension.linear(x, self.columns, self.linear.bias, y, sums, rows, taken, given)
        return y, sums
