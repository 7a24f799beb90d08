"""Points in space to pixels of cameras whose poses are unit quaternions.

Photogrammetry, rendering and robotics do this to millions of points. The rotation matrices are
tiny; the points are read once and their pixels written once, three floats in, two out.
"""

import torch
from torch import nn
from torch.nn import functional

CAMERAS = 256
POINTS = 32768


class Model(nn.Module):
    """Rotate, translate, divide by depth, scale by the focal length."""

    def __init__(self, focal: float, nearest: float) -> None:
        super().__init__()
        self.focal = focal
        self.nearest = nearest

    def forward(
        self, points: torch.Tensor, quaternion: torch.Tensor, offset: torch.Tensor
    ) -> torch.Tensor:
        w, x, y, z = functional.normalize(quaternion, dim=-1).unbind(dim=-1)
        rows = (
            torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
            torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
            torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
        )
        rotation = torch.stack(rows, dim=1)
        seen = torch.bmm(points, rotation.transpose(1, 2)) + offset.unsqueeze(1)
        depth = seen[..., 2:].clamp(min=self.nearest)
        return self.focal * seen[..., :2] / depth


def get_inputs() -> list[torch.Tensor]:
    points = torch.randn(CAMERAS, POINTS, 3)
    offset = torch.randn(CAMERAS, 3) + torch.tensor([0.0, 0.0, 4.0])
    return [points, torch.randn(CAMERAS, 4), offset]


def get_init_inputs() -> list[float]:
    return [2.0, 0.5]
