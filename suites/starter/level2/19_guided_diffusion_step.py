"""One denoising step of a diffusion model with guidance, each sample at a time step of its own.

Two predictions are combined, the clean image is estimated and clipped, and the next, less noisy
one is drawn round it. Coefficients are looked up by sample; everything else is per pixel.
"""

import torch
from torch import nn

BATCH = 64
COLOURS = 3
SIZE = 256
STEPS = 1000


class Model(nn.Module):
    """DDPM's posterior mean plus `noise` times its deviation."""

    def __init__(self, steps: int, guidance: float) -> None:
        super().__init__()
        self.guidance = guidance
        beta = torch.linspace(1e-4, 0.02, steps)
        kept = torch.cumprod(1 - beta, dim=0)
        before = torch.cat([torch.ones(1), kept[:-1]])
        self.register_buffer("signal", kept.sqrt())
        self.register_buffer("noise_share", (1 - kept).sqrt())
        self.register_buffer("from_clean", beta * before.sqrt() / (1 - kept))
        self.register_buffer("from_noisy", (1 - before) * (1 - beta).sqrt() / (1 - kept))
        self.register_buffer("deviation", (beta * (1 - before) / (1 - kept)).sqrt())

    def forward(
        self,
        noisy: torch.Tensor,
        guided: torch.Tensor,
        unguided: torch.Tensor,
        noise: torch.Tensor,
        step: torch.Tensor,
    ) -> torch.Tensor:
        def at(table: torch.Tensor) -> torch.Tensor:
            return table[step].view(-1, 1, 1, 1)

        predicted = unguided + self.guidance * (guided - unguided)
        clean = (noisy - at(self.noise_share) * predicted) / at(self.signal)
        clean = clean.clamp(-1.0, 1.0)
        mean = at(self.from_clean) * clean + at(self.from_noisy) * noisy
        return mean + at(self.deviation) * noise


def get_inputs() -> list[torch.Tensor]:
    images = [torch.randn(BATCH, COLOURS, SIZE, SIZE) for _ in range(4)]
    return [*images, torch.randint(1, STEPS // 2, (BATCH,))]


def get_init_inputs() -> list[int | float]:
    return [STEPS, 3.0]
