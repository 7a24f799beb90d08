"""A vision transformer, ViT-B/16, in bfloat16 with random weights. Needs transformers.

    warpwright optimize --model benches/models/vision.py:build \\
        --inputs benches/models/vision.py --device cuda:0 --separate
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import ViTConfig, ViTModel


class Vision(nn.Module):
    """States of all patches, (batch, 197, 768)."""

    def __init__(self) -> None:
        super().__init__()
        self.vit = ViTModel(ViTConfig(), add_pooling_layer=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.vit(images).last_hidden_state


def build() -> nn.Module:
    """The model, in bfloat16."""
    return Vision().bfloat16().eval()


def get_workloads() -> list[dict[str, Any]]:
    """One image, and sixteen."""
    return [
        {"name": "one", "arguments": {"batch": 1}},
        {"name": "sixteen", "arguments": {"batch": 16}},
    ]


def get_inputs(batch: int = 1) -> list[torch.Tensor]:
    """Images of 224 x 224."""
    return [torch.randn(batch, 3, 224, 224, dtype=torch.bfloat16)]
