"""A decoder with the shapes of Qwen3-0.6B in bfloat16, random weights: prefill and decode.

Needs transformers. Decoding gets the cached keys and values as inputs, so that each call does the
same work.

    warpwright optimize --model benches/models/qwen3.py:build \\
        --inputs benches/models/qwen3.py --device cuda:0 --separate
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.cache_utils import DynamicCache, DynamicLayer

LAYERS, GROUPS, SIZE = 28, 8, 128
"""Layers, heads of keys and values, and numbers of a head: Qwen3-0.6B's `config.json`."""


def filled(keys: torch.Tensor, values: torch.Tensor) -> DynamicLayer:
    """One layer of a cache that holds these keys and values."""
    layer = DynamicLayer()
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys, values
    return layer


class Decoder(nn.Module):
    """Logits of the last token. `past` has the shape (layers, 2, batch, groups, tokens, size)."""

    def __init__(self) -> None:
        super().__init__()
        config = Qwen3Config(
            vocab_size=151936,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=LAYERS,
            num_attention_heads=16,
            num_key_value_heads=GROUPS,
            head_dim=SIZE,
            tie_word_embeddings=True,
        )
        self.decoder = Qwen3ForCausalLM(config)

    def forward(
        self, ids: torch.Tensor, positions: torch.Tensor, past: torch.Tensor | None = None
    ) -> torch.Tensor:
        cache = None
        if past is not None:
            cache = DynamicCache()
            cache.layers = [filled(keys, values) for keys, values in past]
        done = self.decoder(
            input_ids=ids,
            position_ids=positions,
            past_key_values=cache,
            use_cache=cache is not None,
            logits_to_keep=1,
        )
        return done.logits


def build() -> nn.Module:
    """The model, in bfloat16."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        return Decoder().eval()
    finally:
        torch.set_default_dtype(usual)


def get_workloads() -> list[dict[str, Any]]:
    """One prompt of 1024 tokens; one more token for four sequences."""
    return [
        {"name": "prefill", "arguments": {"batch": 1, "tokens": 1024, "past": 0}},
        {"name": "decode", "arguments": {"batch": 4, "tokens": 1, "past": 1024}},
    ]


def get_inputs(batch: int = 1, tokens: int = 128, past: int = 0) -> list[Any]:
    """Token numbers, their positions, and what was cached before them."""
    ids = torch.randint(0, 151936, (batch, tokens))
    positions = torch.arange(past, past + tokens)[None].expand(batch, -1).contiguous()
    if past == 0:
        return [ids, positions]
    shape = (LAYERS, 2, batch, GROUPS, past, SIZE)
    return [ids, positions, torch.randn(shape, dtype=torch.bfloat16)]
