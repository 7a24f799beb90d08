"""A decoder in the manner of Llama, and its input sets."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotated(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, groups: int, layer: int) -> None:
        super().__init__()
        self.layer, self.heads, self.groups, self.size = layer, heads, groups, hidden // heads
        self.q_proj = nn.Linear(hidden, hidden, bias=False)
        self.k_proj = nn.Linear(hidden, groups * self.size, bias=False)
        self.v_proj = nn.Linear(hidden, groups * self.size, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], heads, self.size).transpose(1, 2)

    def forward(
        self,
        x: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, None]:
        q = self.split(self.q_proj(x), self.heads)
        k = self.split(self.k_proj(x), self.groups)
        v = self.split(self.v_proj(x), self.groups)
        cos, sin = rotary
        q, k = q * cos + rotated(q) * sin, k * cos + rotated(k) * sin
        k, v = (t.repeat_interleave(self.heads // self.groups, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(y.transpose(1, 2).reshape(x.shape)), None


class MLP(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, hidden: int, inner: int, heads: int, groups: int, layer: int) -> None:
        super().__init__()
        self.input_norm = RMSNorm(hidden)
        self.attention = Attention(hidden, heads, groups, layer)
        self.post_norm = RMSNorm(hidden)
        self.mlp = MLP(hidden, inner)

    def forward(
        self,
        x: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = x + self.attention(self.input_norm(x), rotary, mask)[0]
        return x + self.mlp(self.post_norm(x))


class Decoder(nn.Module):
    def __init__(self, hidden: int = 64, inner: int = 128, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.size = hidden // heads
        self.embed = nn.Embedding(256, hidden)
        self.layers = nn.ModuleList(
            Layer(hidden, inner, heads, 2, layer) for layer in range(layers)
        )
        self.norm = RMSNorm(hidden)
        self.head = nn.Linear(hidden, 256, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        frequencies = 10000.0 ** -(torch.arange(0, self.size, 2, device=ids.device) / self.size)
        angle = torch.outer(torch.arange(length, device=ids.device), frequencies).repeat(1, 2)
        rotary = (angle.cos()[None, None], angle.sin()[None, None])
        hidden = torch.full((length, length), float("-inf"), device=ids.device)
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, rotary, mask=hidden.triu(1)[None, None])
        return self.head(self.norm(x))


def build() -> nn.Module:
    torch.manual_seed(0)
    return Decoder()


def get_workloads() -> list[dict[str, Any]]:
    return [
        {"name": "prefill", "arguments": {"batch": 2, "length": 32}},
        {"name": "decode", "arguments": {"batch": 4, "length": 1}},
    ]


def get_inputs(batch: int = 1, length: int = 8) -> list[torch.Tensor]:
    return [torch.randint(0, 256, (batch, length))]
