"""Causal attention with its gradients: of queries, keys and values."""

import math

import torch
from torch import nn

BATCH = 2
HEADS = 8
TOKENS = 512
FEATURES = 64

backward = True


class Model(nn.Module):
    """`softmax(q k^T / sqrt(d)) v`, in which a token sees itself and those before it."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill(later, float("-inf")).softmax(dim=-1) @ v


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, HEADS, TOKENS, FEATURES) for _ in range(3)]
