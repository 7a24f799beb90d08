"""Generalised intersection over union between all predicted and all true boxes of an image.

The matching step of a detection transformer. Two short lists make a large table, and in eager some
twenty tables as large or larger on the way.
"""

import torch
from torch import nn

IMAGES = 16
PREDICTED = 2048
TRUE = 1024


class Model(nn.Module):
    """`intersection / union - (hull - union) / hull` of boxes `[left, top, right, bottom]`."""

    def forward(self, predicted: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
        a, b = predicted.unsqueeze(2), true.unsqueeze(1)
        area_a = (a[..., 2] - a[..., 0]) * (a[..., 3] - a[..., 1])
        area_b = (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
        inner_low = torch.maximum(a[..., :2], b[..., :2])
        inner_high = torch.minimum(a[..., 2:], b[..., 2:])
        inner = (inner_high - inner_low).clamp(min=0).prod(dim=-1)
        outer_low = torch.minimum(a[..., :2], b[..., :2])
        outer_high = torch.maximum(a[..., 2:], b[..., 2:])
        hull = (outer_high - outer_low).prod(dim=-1)
        union = area_a + area_b - inner
        return inner / union - (hull - union) / hull


def boxes(count: int) -> torch.Tensor:
    """Boxes of a tenth to a half of the image, anywhere in it."""
    middle = torch.rand(IMAGES, count, 2)
    half = 0.05 + 0.2 * torch.rand(IMAGES, count, 2)
    return torch.cat([middle - half, middle + half], dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [boxes(PREDICTED), boxes(TRUE)]


def get_init_inputs() -> list[int]:
    return []
