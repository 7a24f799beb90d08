"""SwiGLU with its gradients: the activation between the products of a feed-forward block."""

import torch
from torch import nn

ROWS = 4096
FEATURES = 2048

backward = True


class Model(nn.Module):
    """`silu(gate) * up`."""

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(gate) * up


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, FEATURES), torch.randn(ROWS, FEATURES)]
