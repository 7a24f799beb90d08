"""Models that break their graph, write to their inputs, count their calls or do not work."""

from __future__ import annotations

import torch
from torch import nn


def perceptron(inner: int) -> nn.Module:
    return nn.Sequential(nn.Linear(32, inner), nn.GELU(), nn.Linear(inner, 32))


class Breaks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = perceptron(64), perceptron(96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        if x.sum().item() > 1e9:
            x = x + 1
        return self.after(x)


class Counts(nn.Module):
    """Its result depends on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class Writes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)


class Holder(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.sound = inner, perceptron(48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sound(self.inner(x))


def breaks() -> nn.Module:
    return Breaks()


def counts() -> nn.Module:
    return Holder(Counts())


def writes() -> nn.Module:
    return Writes()


def number() -> int:
    return 3


def raises() -> nn.Module:
    raise ValueError("no weights\x1b[31m here")


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(16, 32)]
