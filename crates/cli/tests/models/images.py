"""A ConvNeXt of two blocks in channels-last memory, and an image."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.expand = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.shrink = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(1e-6 * torch.ones(width))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.drop(self.shrink(self.act(self.expand(y))) * self.gamma)
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 4, 4)
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.bn = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": self.head(self.bn(self.blocks(self.stem(image))).mean((2, 3)))}


def build() -> nn.Module:
    torch.manual_seed(0)
    return ConvNeXt().to(memory_format=torch.channels_last)


def get_inputs() -> dict[str, torch.Tensor]:
    image = torch.randn(2, 3, 32, 32)
    return {"image": image.to(memory_format=torch.channels_last)}
