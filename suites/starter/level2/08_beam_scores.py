"""Scores of every continuation of every beam, before the best are kept.

Beam search does this at every generated token: log-probabilities over the vocabulary, added to
what the beam has so far, under a length penalty. A row reduction between two uses of the row.
"""

import torch
from torch import nn

BEAMS = 512
VOCABULARY = 32768


class Model(nn.Module):
    """`(score + log_softmax(logits / temperature)) / ((5 + length) / 6)^alpha`."""

    def __init__(self, temperature: float, alpha: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.alpha = alpha

    def forward(
        self, logits: torch.Tensor, score: torch.Tensor, length: torch.Tensor
    ) -> torch.Tensor:
        log_probability = torch.log_softmax(logits / self.temperature, dim=-1)
        penalty = ((5 + length).float() / 6) ** self.alpha
        return (score.unsqueeze(-1) + log_probability) / penalty.unsqueeze(-1)


def get_inputs() -> list[torch.Tensor]:
    logits = 2 * torch.randn(BEAMS, VOCABULARY)
    return [logits, -20 * torch.rand(BEAMS), torch.randint(1, 200, (BEAMS,))]


def get_init_inputs() -> list[float]:
    return [0.8, 0.6]
