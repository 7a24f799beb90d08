"""Errors of sums in order whose roundings have one sign.

If terms are equal or nearly equal, each addition to a partial sum within one binade is rounded by
the same part of a unit in the last place. Such errors grow with the number of terms, not with its
square root. Adding ``x`` to a multiple of the last place ``p`` errs by ``x - p * round(x / p)``,
independently of the sum. The mean of that over the terms shows whether roundings cancel. It is zero
for whole numbers, zeros and terms of alternating sign, and covers terms too small for the sum.
"""

from __future__ import annotations

import torch

IN_ORDER = 1 << 16
THREADS = 32
"""One thread may sum up to ``IN_ORDER`` terms in order. At least this many threads share a longer
sum."""
LEVELS = 4
"""Binades that are examined, from that of the whole sum downwards. Half of the terms are added in
the first or the second. A program that sums shorter pieces starts in a lower one."""
SCALES = (1.0, 1.19, 1.41, 1.68)
"""Factors to try for terms that are known up to a factor, such as the exponentials of a softmax:
each factor divides them differently by the last place."""
CANCELS = 3 * 12**-0.5
"""Three standard deviations of a rounding, in units of the last place. The mean of n roundings that
cancel stays below this divided by the square root of n; ``SPREAD`` of ``rounding.py`` covers it."""
MOST = 1 << 20
"""Terms of a tensor that are examined. If there are more, some rows stand for their neighbours."""
FEW_LINES = 16
"""Rows and columns of a product whose terms are examined."""
ONE_SIGN = 1 / 3
"""Share of the bound that counts as an honest error; the tolerance is three times as much
(``HONEST_SLACK`` of ``tolerance.rs``). In measurements, sums of equal terms reach a third of the
tolerance, and sums whose terms a large one absorbs nearly all of it
(``docs/results/trust-sums.csv``, which ``benches/sums-in-order`` writes)."""


def in_order(terms: float) -> float:
    """The number of a sum's terms that are summed in order."""
    return max(min(terms, IN_ORDER), terms / THREADS)


def bound(
    rows: torch.Tensor, count: int, unit: float, scales: tuple[float, ...] = (1.0,)
) -> torch.Tensor:
    """Bounds the error of a sum of ``count`` terms when all roundings keep their mean, in a format
    with this unit roundoff. ``rows`` has float64 terms (..., a sample of ``count``); the result is
    per row, and the maximum over the scales applied to the terms."""
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
    """The honest error of each sum of float64 terms over ``dims``, where roundings have one sign.
    The result lacks these dimensions. See ``bound`` for ``scales``."""
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
    """Whether sums over ``dims`` are exact in every order: sums of few and small whole numbers."""
    if not bool((given == given.round()).all()):
        return False
    return given.abs().sum(dims).max().item() <= 1 / unit


def of_product(left: torch.Tensor, right: torch.Tensor, unit: float) -> float:
    """The same for a product (..., m, k) by (..., k, n), relative to the root mean square of the
    results: the maximum over some rows and columns."""
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
