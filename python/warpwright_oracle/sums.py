"""Errors of sums in order whose roundings have one sign.

Where terms are equal, or nearly, each addition to a sum of one binade is rounded by the same part
of a unit in the last place. Such errors grow as the number of terms, not as its root. Adding ``x``
to a multiple of the last place ``p`` errs by ``x - p * round(x / p)``, whatever the sum is: the
mean of that over the terms tells whether roundings cancel. Whole numbers, zeros and terms of
alternating sign show none; a term too small for the sum shows itself.
"""

from __future__ import annotations

import torch

IN_ORDER = 1 << 16
THREADS = 32
"""Terms that one thread may well sum in order; more are divided among at least so many threads."""
LEVELS = 4
"""Binades that are looked at, from that of the whole sum on down. Half of the terms are added in
the first or the second; a program that sums in shorter pieces begins further down."""
SCALES = (1.0, 1.19, 1.41, 1.68)
"""Where terms are known but for a factor, as the exponentials of a softmax are: how the last place
divides them is another by each."""
CANCELS = 3 * 12**-0.5
"""Three standard deviations of a rounding, in units of the last place. Over the root of their
number, so far from zero their mean may be though they cancel, as ``SPREAD`` of ``rounding.py`` has
them."""
MOST = 1 << 20
"""Terms of a tensor that are looked at; of more rows some stand for their neighbours."""
FEW_LINES = 16
"""Rows and columns of a product of which the terms are looked at."""
ONE_SIGN = 1 / 3
"""Share of the bound that is taken for an honest error, three times which is allowed
(``HONEST_SLACK`` of ``tolerance.rs``). Measured sums of equal terms reach a third of what is
allowed, of terms that a large one absorbs nearly all of it (``docs/results/trust-sums.csv``, which
``benches/sums-in-order`` writes)."""


def in_order(terms: float) -> float:
    """How many of a sum's terms are summed in order."""
    return max(min(terms, IN_ORDER), terms / THREADS)


def bound(
    rows: torch.Tensor, count: int, unit: float, scales: tuple[float, ...] = (1.0,)
) -> torch.Tensor:
    """Most that a sum of ``count`` terms is off by when all roundings keep their mean, for each row
    of float64 terms (..., some of the count), in a format of this unit roundoff; the largest of
    terms times each of the scales."""
    chunk = in_order(count)
    mean, size = rows.mean(-1), rows.square().mean(-1).sqrt()
    reached = torch.maximum(mean.abs() * chunk, size * chunk**0.5).nan_to_num_(0.0, 0.0, 0.0)
    most = torch.zeros_like(reached)
    chance = CANCELS / max(rows.shape[-1], 1) ** 0.5
    for scale in scales:
        _, exponent = torch.frexp(reached * scale)
        last = torch.ldexp(torch.full_like(reached, unit / scale), exponent)
        for _ in range(LEVELS):
            parts = rows / last.unsqueeze(-1)
            parts -= parts.round()
            kept = (parts.mean(-1).abs() - chance).clamp_min(0.0)
            most = torch.maximum(most, kept * last)
            last = last / 2
    return torch.nan_to_num(most, 0.0, 0.0, 0.0) * count


def one_sign(
    given: torch.Tensor, dims: list[int], unit: float, scales: tuple[float, ...] = (1.0,)
) -> torch.Tensor:
    """The honest error of each sum of float64 terms over ``dims``, where roundings have one sign;
    without these dims. See ``bound`` for ``scales``."""
    dims = sorted(d % given.dim() for d in dims) if given.dim() else []
    kept = [d for d in range(given.dim()) if d not in dims]
    lines, along, step = given.permute(*kept, *dims), 0, 1
    count = 1
    for d in dims:
        count *= given.shape[d]
    if kept and lines.numel() > MOST:
        along = max(range(len(kept)), key=lambda d: lines.shape[d])
        step = min(-(-lines.numel() // MOST), lines.shape[along])
        lines = lines[(slice(None),) * along + (slice(None, None, step),)]
    if dims and lines.numel() > MOST:
        longest = max(range(len(kept), lines.dim()), key=lambda d: lines.shape[d])
        thin = slice(None, None, -(-lines.numel() // MOST))
        lines = lines[(slice(None),) * longest + (thin,)]
    rows = lines.reshape(*lines.shape[: len(kept)], -1)
    error = bound(rows, count, unit, scales) * ONE_SIGN
    if step > 1:
        error = error.repeat_interleave(step, along).narrow(along, 0, given.shape[kept[along]])
    return error


def is_exact(given: torch.Tensor, dims: list[int], unit: float) -> bool:
    """Whether sums over ``dims`` are exact in every order: of few and small whole numbers."""
    if not bool((given == given.round()).all()):
        return False
    return given.abs().sum(dims).max().item() <= 1 / unit


def of_product(left: torch.Tensor, right: torch.Tensor, unit: float) -> float:
    """The same of a product (..., m, k) by (..., k, n), as a share of the root mean square of the
    results: the largest of some rows and columns."""
    if left.dim() < 2 or right.dim() < 2 or not left.numel() or not right.numel():
        return 0.0
    while left.dim() > 2:
        left = left[0]
    while right.dim() > 2:
        right = right[0]
    count = left.shape[1]
    some = max(1, min(FEW_LINES, int((MOST / max(count, 1)) ** 0.5)))
    rows = left[:: -(-left.shape[0] // some)]
    columns = right[:, :: -(-right.shape[1] // some)]
    terms = (rows.unsqueeze(1) * columns.t().unsqueeze(0)).double()
    size = terms.sum(-1).square().mean().sqrt().item()
    error = bound(terms, count, unit).max().item() * ONE_SIGN
    return error / size if size > 0 else 0.0
