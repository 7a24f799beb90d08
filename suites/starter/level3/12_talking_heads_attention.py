"""Attention whose heads exchange scores before the softmax and weights after it.

Talking-heads attention: two small matrices mix the heads, so no head can be done alone and the
usual fused kernels do not apply. The mixes are over eight values that lie a score matrix apart.
"""

import torch
from torch import nn

BATCH = 2
HEADS = 8
LENGTH = 1024
HEAD_FEATURES = 64


class Model(nn.Module):
    """`post softmax(pre (q k^T / sqrt(d))) v` per head, `pre` and `post` across heads."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.pre = nn.Parameter(torch.eye(heads) + 0.3 * torch.randn(heads, heads))
        self.post = nn.Parameter(torch.eye(heads) + 0.3 * torch.randn(heads, heads))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        scores = torch.einsum("gh,bhij->bgij", self.pre, scores)
        weights = torch.einsum("gh,bhij->bgij", self.post, torch.softmax(scores, dim=-1))
        return weights @ v


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, HEADS, LENGTH, HEAD_FEATURES) for _ in range(3)]


def get_init_inputs() -> list[int]:
    return [HEADS]
