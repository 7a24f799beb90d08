"""Whether inputs are such that honest programs differ on them by much more than on a task's own.

The largest error of one draw says so badly: of exponentials it is that of one element, in units of
a root mean square that is nearly the same element. Each error is taken relative to its own element
and a usual one, and of these one that nearly all are below: from draw to draw it is nearly the
same, where the largest is another by ten times.
"""

from __future__ import annotations

import torch

from .distance import limit

WORSE = 64.0
"""How many times as ill-conditioned as on the task's own inputs a reference may be on others. Where
it is more, honest programs differ."""
NEAR = 8.0
"""So many times below that are the inputs of which it is looked at more closely."""
AGAIN = 3
"""Further honest programs whose errors decide then, by their median."""
SHARE = 0.99
"""Share of the elements that decide."""
MOST = 0.5
"""The same where a few slices are replaced: in a tensor of few rows these are many elements."""
SAMPLE = 1 << 16
LARGEST = 0.05
"""Largest error, in units of the root mean square, of an output of one scale: three times as much
is allowed, and a quarter of its spread at most."""


def condition(tensor: torch.Tensor, exact: torch.Tensor, share: float = SHARE) -> float:
    """The relative error that such a share of the elements of a sample are below."""
    flat, truth = tensor.reshape(-1), exact.reshape(-1)
    step = max(1, truth.numel() // SAMPLE) | 1 if truth.numel() > SAMPLE else 1
    flat, truth = flat[::step].double(), truth[::step]
    counts = torch.isfinite(flat) & (truth.abs() < limit(tensor.dtype))
    flat, truth = flat[counts], truth[counts]
    if not truth.numel():
        return 0.0
    sizes = truth.abs()
    known = sizes[sizes > 0]
    if not known.numel():
        return 0.0
    errors = (flat - truth).abs() / (sizes + known.median())
    return errors.kthvalue(max(1, round(share * errors.numel()))).values.item()
