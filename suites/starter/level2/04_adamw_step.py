"""One step of AdamW for one weight matrix: new weights and both new moments.

What an optimiser does to every parameter at every step. Eager is a dozen passes; the seven
tensors have to be moved once each.
"""

import torch
from torch import nn

ROWS = 4096
COLUMNS = 3072
STEP = 10


class Model(nn.Module):
    """Decoupled weight decay, both moments corrected for `step` steps."""

    def __init__(self, rate: float, decay: float, step: int) -> None:
        super().__init__()
        self.rate = rate
        self.decay = decay
        self.first = 0.9
        self.second = 0.999
        self.step = step

    def forward(
        self,
        weight: torch.Tensor,
        gradient: torch.Tensor,
        mean: torch.Tensor,
        square: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean = self.first * mean + (1 - self.first) * gradient
        square = self.second * square + (1 - self.second) * gradient * gradient
        mean_hat = mean / (1 - self.first**self.step)
        square_hat = square / (1 - self.second**self.step)
        update = mean_hat / (square_hat.sqrt() + 1e-8)
        return weight * (1 - self.rate * self.decay) - self.rate * update, mean, square


def get_inputs() -> list[torch.Tensor]:
    shape = (ROWS, COLUMNS)
    weight, gradient, mean = (torch.randn(shape) for _ in range(3))
    return [0.1 * weight, gradient, 0.3 * mean, 0.002 + 0.01 * torch.rand(shape)]


def get_init_inputs() -> list[int | float]:
    return [0.02, 0.1, STEP]
