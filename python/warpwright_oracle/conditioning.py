"""Whether honest programs differ by much more on some inputs than on the task's own.

The largest error of one set of inputs is a poor measure. For exponentials it is the error of one
element, in units of a root mean square that nearly equals the same element. Instead, each error is
taken relative to its own element plus the median element, and a high quantile of these decides.
Between seeds that quantile hardly changes, while the largest error changes tenfold.
"""

from __future__ import annotations

import torch

from .distance import limit

WORSE = 64.0
"""Largest allowed ratio of the reference's condition on other inputs to that on the task's own.
Above it, honest programs differ."""
NEAR = 8.0
"""Inputs whose ratio is within this factor of ``WORSE`` are examined further."""
AGAIN = 3
"""Number of further honest programs for them; their median error decides."""
SHARE = 0.99
"""Quantile of the elements' errors that decides."""
MOST = 0.5
"""The same for the family that replaces a few slices: in a tensor of few rows these are many
elements."""
SAMPLE = 1 << 16
LARGEST = 0.05
"""Largest honest error, in units of the root mean square, of an output with one scale. The
tolerance is three times as much, and at most a quarter of the output's spread."""


def condition(tensor: torch.Tensor, exact: torch.Tensor, share: float = SHARE) -> float:
    """The relative error that this share of the sampled elements stays below."""
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
