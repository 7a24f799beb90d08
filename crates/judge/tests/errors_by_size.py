"""Outputs of several scales are cut into classes of magnitude, others are not. Raises AssertionError
where that is not so; the last line says how many outputs were looked at.
"""

from __future__ import annotations

import torch
from warpwright_oracle.distance import distance
from warpwright_oracle.scales import by_scale, edges


def rms(tensor: torch.Tensor) -> float:
    known = tensor[torch.isfinite(tensor)]
    return known.square().mean().sqrt().item()


def one_scale() -> int:
    normal = torch.randn(100_000).double()
    outputs = {
        "normal": normal,
        "uniform": torch.rand(100_000).double(),
        "exponential": normal.exp(),
        "half zero": normal.relu(),
        "nearly all zero": normal * (torch.rand(100_000) < 0.01),
        "softmax": normal.view(100, 1000).softmax(-1),
        "far from zero": 1e6 + normal,
        "constant": torch.full((1000,), 3.0).double(),
        "zeros": torch.zeros(1000).double(),
        "infinite": torch.full((1000,), float("inf")).double(),
        "one": torch.ones(1).double(),
        "none": torch.ones(0).double(),
    }
    for name, truth in outputs.items():
        size = rms(truth) if torch.isfinite(truth).any() else 0.0
        assert edges(truth, size) == [], name
    return len(outputs)


def several_scales() -> int:
    normal = torch.randn(100_000).double()
    mask = torch.rand(100_000) < 0.1
    outputs = {
        "masked": torch.where(mask, -1e9, normal),
        "masked by the least number": torch.where(mask, -3.4e38, normal),
        "poles": 1 / normal,
        "energies": torch.cat([normal[:100] * 1e6, normal]),
    }
    for name, truth in outputs.items():
        size = rms(truth)
        mine = truth.float()
        mine[(truth.abs() > 0.5) & (truth.abs() < 2)] += 1e-5
        found = by_scale(mine, truth, size)
        assert found, name
        below = [each["below"] for each in found]
        assert below == sorted(below), name
        held = next(each for each in found if each["below"] > 2)
        assert held["rms"] < 1e-1 * size, name
        assert 0.9e-5 < held["beyond"] < 1.1e-5, (name, found)
    infinite = torch.where(mask, float("-inf"), torch.where(mask.roll(1), -1e9, normal))
    assert by_scale(infinite.float(), infinite, rms(infinite)), "what is not finite has no size"
    return len(outputs) + 1


def lost_in_half_precision() -> int:
    """A gate below the least number of half precision is zero, and what it gates is small, not zero."""
    gate, up = (128 / 4 * torch.randn(2, 16384)).half().double()
    truth = torch.nn.functional.silu(gate) * up
    mine = torch.nn.functional.silu(gate).half() * up.half()
    size = rms(truth)
    assert distance(mine, truth).apart == 0, "as large as the output they differ by nothing"
    lost = [each for each in by_scale(mine, truth, size) if each["apart"]]
    assert lost and all(each["below"] < 1e-3 for each in lost), lost
    exact = by_scale(truth.float(), truth, size)
    assert not any(each["apart"] for each in exact if each["below"] > 1e-30), exact
    return 1


torch.manual_seed(5)
print("looked at", one_scale(), several_scales(), lost_in_half_precision())
