"""Two blocks of a diffusion model's U-Net in bfloat16, random weights: residual convolutions with
a time embedding, and attention to a text, with the shapes of Stable Diffusion's second level.

    warpwright optimize --model benches/models/diffusion.py:build \\
        --inputs benches/models/diffusion.py --device cuda:0 --separate
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    """Two convolutions with group norms; the time is added between them."""

    def __init__(self, channels: int, time: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(32, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time = nn.Linear(time, channels)
        self.norm2 = nn.GroupNorm(32, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        y = y + self.time(F.silu(time))[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    """Attention of pixels to each other or to a text."""

    def __init__(self, width: int, other: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(other, width, bias=False)
        self.v = nn.Linear(other, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in (self.q(x), self.k(text), self.v(text))
        )
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """The feed-forward part with a GELU gate."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.expand = nn.Linear(width, 8 * width)
        self.shrink = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, gate = self.expand(x).chunk(2, -1)
        return self.shrink(y * F.gelu(gate))


class Transformer(nn.Module):
    """Self-attention, attention to the text, feed-forward."""

    def __init__(self, channels: int, text: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, channels)
        self.into = nn.Linear(channels, channels)
        self.norm1 = nn.LayerNorm(channels)
        self.self_attention = Attention(channels, channels, heads)
        self.norm2 = nn.LayerNorm(channels)
        self.text_attention = Attention(channels, text, heads)
        self.norm3 = nn.LayerNorm(channels)
        self.gated = Gated(channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        y = self.into(self.norm(x).flatten(2).transpose(1, 2))
        own = self.norm1(y)
        y = y + self.self_attention(own, own)
        y = y + self.text_attention(self.norm2(y), text)
        y = y + self.gated(self.norm3(y))
        return x + self.out(y).transpose(1, 2).unflatten(2, x.shape[2:])


class Level(nn.Module):
    """Two residual blocks and two transformers."""

    def __init__(self, channels: int = 640, time: int = 1280, text: int = 768) -> None:
        super().__init__()
        self.residuals = nn.ModuleList(Residual(channels, time) for _ in range(2))
        self.transformers = nn.ModuleList(Transformer(channels, text, 10) for _ in range(2))

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        for residual, transformer in zip(self.residuals, self.transformers, strict=True):
            x = transformer(residual(x, time), text)
        return x


def build() -> nn.Module:
    """The model, in bfloat16."""
    return Level().bfloat16().eval()


def get_workloads() -> list[dict[str, Any]]:
    """One image with its unconditional twin, and four of them."""
    return [
        {"name": "one", "arguments": {"batch": 2}},
        {"name": "four", "arguments": {"batch": 8}},
    ]


def get_inputs(batch: int = 2) -> list[torch.Tensor]:
    """Latents of 32 x 32, the time, and 77 tokens of text."""
    return [
        torch.randn(batch, 640, 32, 32, dtype=torch.bfloat16),
        torch.randn(batch, 1280, dtype=torch.bfloat16),
        torch.randn(batch, 77, 768, dtype=torch.bfloat16),
    ]
