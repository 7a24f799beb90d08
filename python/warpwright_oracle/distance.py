"""Error measures of results against the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

PIECE = 1 << 26
"""Elements of a large tensor that are processed together."""
CEILING = 0.25
"""Largest error of an element, in units of the output's spread, that still counts as an error of
the same value (``CEILING`` of ``tolerance.rs``)."""
UNUSUAL = 64
"""Where some elements differ by more than the ceiling, the other elements count up to this multiple
of the median error."""


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Cuts tensors of equal shape into the same pieces, so that intermediate results stay small."""
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
    """Differences between a result and the truth. An element counts where both are finite and the
    truth is within the range of the result's dtype: an overflowing element has no measurable
    error."""

    error: float
    """Largest difference."""
    rms: float
    """Root mean square of the truth's elements that count."""
    largest: float
    """Their largest magnitude."""
    agrees: bool
    """Whether the result is finite exactly where the truth is within range."""
    spread: float = 0.0
    """Standard deviation of the truth's elements that count."""
    count: int = 0
    """Elements that count."""
    apart: int = 0
    """Counted elements that differ by more than ``CEILING * spread``: there the two have different
    values."""
    near: float = 0.0
    """Largest difference of the other counted elements."""
    beyond: float = 0.0
    """The same, after subtracting the tolerance relative to the element."""


INFINITE = float("inf")
LARGEST = {
    torch.float16: 65504.0,
    torch.bfloat16: 2.0**128 - 2.0**120,
    torch.float32: 2.0**128 - 2.0**104,
}


def limit(dtype: torch.dtype) -> float:
    """The smallest magnitude that rounds to infinity in a dtype (``Dtype::limit`` of
    ``dtype.rs``)."""
    ulp = {torch.float16: 2.0**5, torch.bfloat16: 2.0**120, torch.float32: 2.0**104}
    return LARGEST[dtype] + ulp[dtype] / 2 if dtype in LARGEST else INFINITE


def magnitude(tensor: torch.Tensor) -> float:
    """The largest magnitude; infinity where an element is infinite or NaN. Reads the tensor once
    and allocates no other."""
    low, high = torch.aminmax(tensor)
    most = max(-low.item(), high.item())
    return most if most == most else INFINITE


class Moments:
    """Count, mean and sum of squared deviations, piece by piece (Chan et al. 1979)."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, values: torch.Tensor) -> None:
        """Adds a piece in float64."""
        n = values.numel()
        if not n:
            return
        values = values.float() if values.element_size() < 4 else values
        variance, mean = (part.item() for part in torch.var_mean(values, correction=0))
        apart, total = mean - self.mean, self.count + n
        self.squares += variance * n + apart * apart * self.count * n / total
        self.mean += apart * n / total
        self.count = total


ELEMENT_ULPS = {torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""Tolerance relative to an element (``ELEMENT_ULPS`` of ``tolerance.rs``), in formats where
rounding the result is most of an honest error. In longer formats the errors of sums are larger."""


def distance(tensor: torch.Tensor, exact: torch.Tensor) -> Distance:
    """The distance between real tensors of one shape."""
    error, beyond, size, agrees, moments = 0.0, 0.0, 0.0, True, Moments()
    relative = ELEMENT_ULPS.get(tensor.dtype, 0.0)
    most = limit(tensor.dtype)
    for mine, truth in pieces(tensor, exact):
        if truth.numel() and (largest := magnitude(truth)) < most and magnitude(mine) < INFINITE:
            # Equivalent to the code below where every element counts, in a quarter of the time.
            moments.add(truth)
            size = max(size, largest)
            apart_by = mine.double() - truth
            error = max(error, magnitude(apart_by))
            if relative:
                beyond = max(beyond, (apart_by.abs_() - relative * truth.abs()).max().item())
            continue
        there, counts = _counting(mine, truth, most)
        agrees = agrees and bool((there == torch.isfinite(mine)).all())
        known = truth[counts]
        moments.add(known)
        if known.numel():
            size = max(size, magnitude(known))
            apart_by = mine[counts].double() - known
            error = max(error, magnitude(apart_by))
            if relative:
                beyond = max(beyond, (apart_by.abs_() - relative * known.abs()).max().item())
    if not moments.count:
        return Distance(0.0, 0.0, 0.0, agrees)
    # Squares of numbers that only float64 can hold may overflow. No deviation exceeds twice the
    # largest.
    variance = moments.squares / moments.count
    rms = _root(variance + moments.mean * moments.mean, size)
    spread = _root(variance, 2 * size)
    near, apart = error, 0
    beyond = beyond if relative else error
    if 0.0 < CEILING * spread < beyond:
        near, apart = _without(tensor, exact, CEILING * spread)
        beyond = min(beyond, near)
    return Distance(error, rms, size, agrees, spread, moments.count, apart, near, beyond)


def _root(square: float, most: float) -> float:
    return min(max(square, 0.0) ** 0.5, most) if square == square else most


def _counting(
    mine: torch.Tensor, truth: torch.Tensor, most: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the truth is within range, and where the elements count."""
    there = truth.abs() < most
    return there, there & torch.isfinite(mine)


def _without(tensor: torch.Tensor, exact: torch.Tensor, far: float) -> tuple[float, int]:
    """The largest error among elements with the same value, and the number of elements that are off
    by more than ``far``. If some are, others may coincidentally be off by slightly less. So errors
    of many times the median are excluded too."""
    error, apart, most, usual = 0.0, 0, limit(tensor.dtype), None
    for mine, truth in pieces(tensor, exact):
        _, counts = _counting(mine, truth, most)
        errors = (mine[counts].double() - truth[counts]).abs()
        if not errors.numel():
            continue
        if usual is None:
            usual = min(UNUSUAL * errors.median().item(), far)
        apart += int((errors > far).sum().item())
        error = max(error, torch.where(errors > usual, 0.0, errors).max().item())
    return error, apart


def largest(tensor: torch.Tensor) -> float:
    """Largest magnitude among the finite elements."""
    sizes = [torch.where(torch.isfinite(t), t, 0.0).abs().max().item() for (t,) in pieces(tensor)]
    return max(sizes, default=0.0)
