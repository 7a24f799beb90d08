"""Three cross layers of a recommender: explicit products of features, of growing degree.

DCN-v2, as ranking models run it beside their MLP. Each layer is a square product whose result
meets the network's input and the layer's own: three more passes in eager, none if fused.
"""

import torch
from torch import nn

BATCH = 8192
FEATURES = 1024
LAYERS = 3


class Model(nn.Module):
    """`x_{l + 1} = x_0 * (W_l x_l + b_l) + x_l`."""

    def __init__(self, features: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(features, features) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        crossed = x
        for layer in self.layers:
            crossed = x * layer(crossed) + crossed
        return crossed


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs() -> list[int]:
    return [FEATURES, LAYERS]
