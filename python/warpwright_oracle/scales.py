"""Errors per magnitude, for outputs whose elements differ greatly in size.

Suppose an output contains a sentinel of -1e9, a pole or an energy beside medians. Then its root
mean square says nothing about most of its elements: a tolerance relative to it covers them all,
zeros included. Such an output is divided into classes of magnitude, each with its own errors.
Outputs with one scale have no classes.
"""

from __future__ import annotations

from typing import Any

import torch

from .distance import distance, limit

MANY = 64.0
"""Least ratio of root mean square to median magnitude of an output with several scales. The ratio
is 1.5 for normal numbers and 2 for exponential ones."""
BINADES = 8
"""Binades per class."""
LEAST = 1100 // BINADES
"""Number of classes below magnitude one in float64."""
FEW = 64
"""Fewest elements of a class, absolute and, below, as a share of the output."""
SHARE = 1 / 256
SAMPLE = 4096
"""Elements sampled for the median."""


def edges(exact: torch.Tensor, rms: float) -> list[float]:
    """Upper ends of the classes of a float64 truth, in ascending order. The largest class has no
    end, and an output with one scale has no ends at all. A class with few elements joins the next
    larger one."""
    flat = exact.reshape(-1)
    if flat.numel() < 2 * FEW or not rms:
        return []
    some = flat[:: max(1, flat.numel() // SAMPLE) | 1].abs()
    some = some[torch.isfinite(some) & (some > 0)]
    if not some.numel() or rms < MANY * some.median().item():
        return []
    sizes = flat.abs()
    sizes = sizes[torch.isfinite(sizes)]
    _, exponents = torch.frexp(sizes[sizes > 0])
    classes = torch.div(exponents, BINADES, rounding_mode="floor") + LEAST
    counts = torch.bincount(classes.long()).tolist()
    waiting = int((sizes == 0).sum().item())
    least, found = max(FEW, SHARE * flat.numel()), []
    for number, count in enumerate(counts[:-1]):
        waiting += count
        if waiting >= least:
            found.append(2.0 ** (BINADES * (number - LEAST + 1) - 1))
            waiting = 0
    return found


def by_scale(tensor: torch.Tensor, exact: torch.Tensor, rms: float) -> list[dict[str, Any]]:
    """Measurements per class of a result's elements. ``below``: the class's upper end. ``rms``: of
    the truth. ``beyond``: the largest error. ``apart``: the number of elements that differ by more
    than any tolerance allows (``Distance``)."""
    return within(tensor, exact, edges(exact, rms))


def within(tensor: torch.Tensor, exact: torch.Tensor, ends: list[float]) -> list[dict[str, Any]]:
    """The same for classes with these upper ends."""
    found, low = [], -1.0
    if not ends:
        return found
    mine, truth = tensor.reshape(-1), exact.reshape(-1)
    sizes = truth.abs()
    most = limit(tensor.dtype)
    for below in ends:
        there = (sizes >= low) & (sizes < min(below, most))
        low = below
        far = distance(mine[there], truth[there])
        if far.count >= FEW and far.rms:
            found.append({"below": below, "rms": far.rms, "beyond": far.beyond, "apart": far.apart})
    return found
