"""Sigmoid focal loss of a one-stage detector, summed per image.

Almost all anchors are background, and the loss weighs them down. Ten elementwise steps and a sum:
eager writes every step, and only one number per image is wanted.
"""

import torch
from torch import nn
from torch.nn import functional

IMAGES = 32
ANCHORS = 8192
CLASSES = 80


class Model(nn.Module):
    """Cross entropy times `(1 - p_t)^2`, positives weighted by `alpha`, summed per image."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(logits)
        entropy = functional.softplus(logits) - logits * target
        p_t = p * target + (1 - p) * (1 - target)
        alpha_t = self.alpha * target + (1 - self.alpha) * (1 - target)
        return (alpha_t * (1 - p_t).square() * entropy).sum(dim=(1, 2))


def get_inputs() -> list[torch.Tensor]:
    # Images differ in confidence and in how much there is to find, and so do their sums.
    logits = (1 + 2 * torch.rand(IMAGES, 1, 1)) * torch.randn(IMAGES, ANCHORS, CLASSES) - 1
    share = 0.3 * torch.rand(IMAGES, 1, 1)
    target = (torch.rand(IMAGES, ANCHORS, CLASSES) < share).float()
    return [logits, target]


def get_init_inputs() -> list[float]:
    return [0.25]
