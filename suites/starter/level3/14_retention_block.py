"""Retention: linear attention with a decay per head, a norm per head, and a gate.

The parallel form of a retentive network's layer. No softmax: scores are multiplied by a decaying
causal mask, and the result is normed over each head's features and gated.
"""

import torch
from torch import nn
from torch.nn import functional

BATCH = 4
HEADS = 8
LENGTH = 1024
HEAD_FEATURES = 64


class Model(nn.Module):
    """`silu(gate) * norm((q k^T / sqrt(d) * decay^(i - j)) v)`, heads merged and projected."""

    def __init__(self, heads: int, head_features: int, length: int) -> None:
        super().__init__()
        features = heads * head_features
        decay = 1 - 2.0 ** (-3 - torch.arange(heads))
        position = torch.arange(length)
        distance = position.unsqueeze(-1) - position
        mask = decay.view(-1, 1, 1) ** distance.clamp(min=0)
        self.register_buffer("mask", torch.where(distance >= 0, mask, 0.0))
        self.norm = nn.LayerNorm(head_features, elementwise_affine=False)
        self.project = nn.Linear(features, features, bias=False)

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor
    ) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        mixed = self.norm((scores * self.mask) @ v)
        merged = mixed.transpose(1, 2).flatten(2)
        return self.project(functional.silu(gate) * merged)


def get_inputs() -> list[torch.Tensor]:
    q, k, v = (torch.randn(BATCH, HEADS, LENGTH, HEAD_FEATURES) for _ in range(3))
    return [q, k, v, torch.randn(BATCH, LENGTH, HEADS * HEAD_FEATURES)]


def get_init_inputs() -> list[int]:
    return [HEADS, HEAD_FEATURES, LENGTH]
