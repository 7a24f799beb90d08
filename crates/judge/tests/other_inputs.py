"""What families make of inputs. Raises AssertionError where it is something else; the last line says
how much was looked at.
"""

from __future__ import annotations

import torch
from warpwright_oracle import families
from warpwright_oracle.families import FAMILIES, LAST, TRIED_FIRST, change, changeable


def changed(values: torch.Tensor, family: str, seed: int = 7) -> torch.Tensor:
    traits = changeable(values)
    assert traits is not None
    return change([values], family, {0: traits}, seed)[0]


def all_are_tried() -> int:
    assert sorted((*TRIED_FIRST, LAST)) == sorted(FAMILIES)
    return len(TRIED_FIRST)


def spikes() -> int:
    """One element is far from all others, wherever pieces begin, and zeros are none."""
    for size in (2, 1000, families.HOST_PIECE + 3):
        values = torch.randn(size)
        values[::3] = 0.0
        spiked = changed(values, "spike")
        other = spiked != values
        assert 1 <= int(other.sum()) <= 2, size
        assert torch.allclose(spiked[other].abs(), families.SPIKE * values.abs().max())
        assert not (other & (values == 0)).any()
        if size > 2:
            assert not torch.equal(changed(values, "spike", 8), spiked), "another seed"
    return 3


def steep() -> int:
    """What is not shifted overflows, and float32's own roundings are small."""
    logits = changed(torch.randn(64, 512), "steep")
    assert torch.isinf(logits.exp()).any() and torch.isfinite(logits.softmax(-1)).all()
    assert not torch.isinf(changed(torch.randn(64, 512), "large").exp()).any(), "it is why it is"
    return 2


def sums() -> int:
    """Probabilities are left alone, also in short formats; what sums to nearly the same is not."""
    kept, free = [], []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for rows in (3, 64):
            kept.append(torch.randn(rows, 8192).softmax(-1).to(dtype))
            free.append(torch.rand(rows, 8192).to(dtype))
    free.append(torch.nn.functional.normalize(torch.randn(64, 128)))
    free.append(torch.nn.functional.normalize(torch.randn(64, 128), dim=0))
    assert all(changeable(each) is None for each in kept)
    assert all(changeable(each) is not None for each in free)
    return len(kept) + len(free)


torch.manual_seed(4)
print("looked at", all_are_tried(), spikes(), steep(), sums())
