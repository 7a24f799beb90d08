"""RMSNorm, forward and backward. Forward saves its input and one factor per row."""

import cuda_extension
import torch
from torch import nn

GROUPS = 256


class ModelNew(nn.Module):
    """Sums the gradient of the weight in two launches: over groups of rows, then over groups."""

    def __init__(self, features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, features = x.numel() // x.shape[-1], x.shape[-1]
        out, factors = torch.empty_like(x), x.new_empty(rows)
        cuda_extension.rms_forward(x, self.weight, out, factors, rows, features, self.eps)
        self.saved = (x, factors)
        return out

    def backward(self, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, factors = self.saved
        rows, features = factors.shape[0], x.shape[-1]
        groups = min(GROUPS, rows)
        grad_x, grad_weight = torch.empty_like(x), torch.empty_like(self.weight)
        parts = x.new_empty(groups, features)
        cuda_extension.rms_backward(x, self.weight, factors, grad, grad_x, rows, features)
        cuda_extension.rms_backward_weight(
            x, factors, grad, parts, grad_weight, rows, features, groups
        )
        return grad_x, grad_weight
