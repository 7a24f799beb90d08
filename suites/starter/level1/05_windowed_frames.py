"""Overlapping frames of audio under a Hann window, as a short-time Fourier transform wants them.

Frames are a view; their windowed copies are four times the samples.
A kernel that reads each sample from memory once, and not once per frame, moves the least.
"""

import torch
from torch import nn

CLIPS = 64
SAMPLES = 160000
FRAME = 1024
HOP = 256


class Model(nn.Module):
    """Frames of `frame` samples every `hop` samples, times the window."""

    def __init__(self, frame: int, hop: int) -> None:
        super().__init__()
        self.frame = frame
        self.hop = hop
        self.register_buffer("window", torch.hann_window(frame))

    def forward(self, audio: torch.Tensor) -> torch.Tensor:
        return audio.unfold(-1, self.frame, self.hop) * self.window


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(CLIPS, SAMPLES)]


def get_init_inputs() -> list[int]:
    return [FRAME, HOP]
