"""How far results are from the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

PIECE = 1 << 26
"""Elements of a large tensor that are looked at together."""


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Equal tensors cut into the same pieces, so that what is computed of them stays small."""
    flat = [t.reshape(-1) for t in tensors]
    for start in range(0, flat[0].numel(), PIECE):
        yield tuple(t[start : start + PIECE] for t in flat)


def slabs(tensor: torch.Tensor, dim: int) -> list[torch.Tensor]:
    """Parts of a tensor that have all of ``dim``, cut along its longest other dimension."""
    others = [d for d in range(tensor.dim()) if d != dim]
    across = max(others, key=lambda d: tensor.shape[d], default=None)
    if across is None:
        return [tensor]
    return list(tensor.split(max(1, PIECE * tensor.shape[across] // tensor.numel()), across))


@dataclass(frozen=True)
class Distance:
    """Between a result and the truth."""

    error: float
    """Largest difference where both are finite."""
    rms: float
    """Root mean square of the truth's finite elements."""
    largest: float
    """Their largest magnitude."""
    agrees: bool
    """Whether the result is finite exactly where the truth is."""


INFINITE = float("inf")


def magnitude(tensor: torch.Tensor) -> float:
    """The largest magnitude; infinity where an element is infinite or no number. Reads the tensor
    once and makes no other."""
    low, high = torch.aminmax(tensor)
    most = max(-low.item(), high.item())
    return most if most == most else INFINITE


def distance(tensor: torch.Tensor, exact: torch.Tensor) -> Distance:
    """Between tensors of one shape."""
    error, squares, size, count, agrees = 0.0, 0.0, 0.0, 0, True
    for mine, truth in pieces(tensor, exact):
        if mine.numel() and (most := magnitude(truth)) < INFINITE > magnitude(mine):
            # As below, in a quarter of the time: where all are finite, every element counts.
            squares += truth.square().sum().item()
            size = max(size, most)
            count += truth.numel()
            error = max(error, magnitude(mine - truth))
            continue
        finite = torch.isfinite(truth)
        known = torch.where(finite, truth, 0.0)
        squares += known.square().sum().item()
        size = max(size, known.abs().max().item())
        count += int(finite.sum().item())
        there = torch.isfinite(mine)
        both = finite & there
        agrees = agrees and bool((finite == there).all())
        apart = torch.where(both, mine.double() - known, 0.0)
        error = max(error, apart.abs().max().item())
    # Squares of what only float64 can hold overflow; no mean is above the largest.
    rms = min((squares / count) ** 0.5, size) if count else 0.0
    return Distance(error, rms, size, agrees)


def largest(tensor: torch.Tensor) -> float:
    """Largest magnitude among the finite elements."""
    sizes = [torch.where(torch.isfinite(t), t, 0.0).abs().max().item() for (t,) in pieces(tensor)]
    return max(sizes, default=0.0)
