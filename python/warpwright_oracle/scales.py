"""Errors by size, of outputs whose elements are of very different sizes.

A sentinel of -1e9, a pole or an energy beside medians makes an output's root mean square say
nothing of most of its elements: whatever is allowed relative to it covers them, zeros included.
Such an output is cut into classes of magnitude, each with its own errors. Outputs of one scale have
none.
"""

from __future__ import annotations

from typing import Any

import torch

from .distance import distance, limit

MANY = 64.0
"""How many times as large as the median magnitude a root mean square is of elements that have more
than one scale. Of normal numbers it is 1.5 times, of exponential ones 2."""
BINADES = 8
"""That one class has."""
LEAST = 1100 // BINADES
"""Classes below that of one, in double."""
FEW = 64
"""Elements that are no class of their own, in any output; and which share of it:"""
SHARE = 1 / 256
SAMPLE = 4096
"""Elements that tell the median."""


def edges(exact: torch.Tensor, rms: float) -> list[float]:
    """The magnitudes below which the classes of a truth in float64 end, from small to large; the
    largest class has none, and where there is one scale only there are no others. Classes of few
    elements go with the next larger one."""
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
    """Of each class of a result's elements: ``below`` which magnitude of the truth it ends, ``rms``
    of the truth, ``beyond``, the largest error, and ``apart``, how many differ by more than any
    tolerance allows (``Distance``)."""
    return within(tensor, exact, edges(exact, rms))


def within(tensor: torch.Tensor, exact: torch.Tensor, ends: list[float]) -> list[dict[str, Any]]:
    """The same, of classes that end at these magnitudes."""
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
