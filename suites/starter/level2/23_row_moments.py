"""Mean, deviation, skewness and kurtosis of many signals.

Condition monitoring reduces each window of a sensor to these four. Every moment is about the mean:
eager reads tensors of the signals' size nine times and writes five; one reading is enough.
"""

import torch
from torch import nn

SIGNALS = 16384
SAMPLES = 4096


class Model(nn.Module):
    """`[mean, deviation, skewness, excess kurtosis]` per signal."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        centred = x - mean
        variance = centred.square().mean(dim=-1)
        deviation = variance.sqrt()
        skewness = centred.pow(3).mean(dim=-1) / (variance * deviation)
        kurtosis = centred.square().square().mean(dim=-1) / variance.square() - 3
        return torch.stack([mean.squeeze(-1), deviation, skewness, kurtosis], dim=-1)


def get_inputs() -> list[torch.Tensor]:
    # Signals between Gaussian and strongly lopsided.
    bend = 0.4 * torch.rand(SIGNALS, 1)
    noise = torch.randn(SIGNALS, SAMPLES)
    return [noise + bend * noise.square()]


def get_init_inputs() -> list[int]:
    return []
