"""Says what a tensor's values are like, and writes an expression that draws such values."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

MASKED = -1e4
"""Additive masks have numbers at most this large, and zeros."""
FEW_NUMBERS = 8
MOST_LOOKED_AT = 1 << 20
"""Elements whose statistics are computed; a larger tensor is sampled."""


@dataclass(frozen=True)
class Values:
    """What values are like. ``low`` and ``high`` bound them, or are mean and deviation."""

    kind: str
    low: float = 0.0
    high: float = 0.0


def short(number: float) -> float:
    """A number with two digits: a task must not depend on the last bits of weights."""
    return float(f"{number:.2g}")


def like(tensor: torch.Tensor) -> Values:
    """What the values of a tensor are like."""
    tensor = tensor.detach()
    if tensor.numel() == 0:
        return Values("constant", 0.0)
    if tensor.is_complex():
        return Values("normal", 0.0, 1.0)
    triangle = triangular(tensor)
    if triangle is not None:
        return triangle
    flat = tensor.reshape(-1)
    flat = flat[:: max(1, flat.numel() // MOST_LOOKED_AT)]
    if tensor.dtype is torch.bool:
        share = flat.float().mean().item()
        return Values("constant", share) if share in (0.0, 1.0) else Values("chance", short(share))
    wide = flat.to(torch.int64 if not tensor.is_floating_point() else torch.float64)
    low, high = wide.min().item(), wide.max().item()
    if not tensor.is_floating_point():
        if counts_up(tensor):
            return Values("count", low)
        return Values("constant", low) if low == high else Values("integers", low, high)
    if not (math.isfinite(low) and math.isfinite(high)):
        return Values("constant", 0.0) if low == -math.inf else Values("normal", 0.0, 1.0)
    if low == high:
        return Values("constant", low)
    if high <= 0 and low <= MASKED:
        return Values("constant", 0.0)
    if low >= 0:
        return Values("uniform", short(low), short(high))
    return Values("normal", short(wide.mean().item()), short(wide.std().item()))


def triangular(tensor: torch.Tensor) -> Values | None:
    """A causal mask, boolean or additive."""
    if tensor.dim() < 2 or tensor.shape[-2] < 2 or tensor.numel() > MOST_LOOKED_AT:
        return None
    rows, columns = tensor.shape[-2:]
    one = torch.ones(rows, columns, dtype=torch.bool, device=tensor.device)
    seen = one.tril(columns - rows).expand(tensor.shape)
    if tensor.dtype is torch.bool:
        return Values("causal") if torch.equal(tensor, seen) and not seen.all() else None
    if tensor.is_floating_point() and torch.equal(tensor == 0, seen):
        hidden = tensor[~seen]
        if hidden.numel() and bool((hidden == hidden[0]).all()) and hidden[0].item() <= MASKED:
            return Values("causal", hidden[0].item())
    return None


def counts_up(tensor: torch.Tensor) -> bool:
    """Whether each row counts up by one from the same number."""
    if tensor.dim() == 0 or tensor.shape[-1] < 2:
        return False
    row = torch.arange(tensor.shape[-1], device=tensor.device) + tensor.reshape(-1)[0].long()
    return bool((tensor.long() == row).all())


def number(value: float, dtype: torch.dtype) -> str:
    """The text of a number of a dtype."""
    if dtype is torch.bool:
        return str(bool(value))
    if not dtype.is_floating_point and not dtype.is_complex:
        return str(int(value))
    return repr(float(value)) if math.isfinite(value) else f'float("{value}")'


def drawn(values: Values, shape: str, dims: list[str], dtype: torch.dtype) -> str:
    """An expression of such values. ``shape`` is the text of a shape, ``dims`` are its sizes."""
    typed = "" if dtype is torch.float32 else f", dtype={dtype}"
    last = dims[-1] if dims else "1"
    if values.kind == "constant":
        return f"torch.full({shape}, {number(values.low, dtype)}{typed})"
    if values.kind == "chance":
        return f"torch.rand({shape}) < {values.low}"
    if values.kind == "causal":
        rows = dims[-2]
        if dtype is torch.bool:
            return f"torch.ones({shape}, dtype=torch.bool).tril({last} - {rows})"
        masked = f"torch.full({shape}, {number(values.low, dtype)}{typed})"
        return f"{masked}.triu(1 + {last} - {rows})"
    if values.kind == "integers":
        bounds = f"{int(values.low)}, {int(values.high) + 1}"
        return f"torch.randint({bounds}, {shape}, dtype={dtype})"
    if values.kind == "count":
        start = int(values.low)
        row = f"torch.arange({start}, {start} + {last}, dtype={dtype})"
        return f"{row}.expand({shape}).contiguous()"
    if values.kind == "uniform":
        span = short(values.high - values.low)
        text = f"torch.rand({shape}{typed})"
        text = text if span == 1 else f"{text} * {span}"
        return text if values.low == 0 else f"{text} + {values.low}"
    text = f"torch.randn({shape}{typed})"
    text = text if values.high == 1 else f"{text} * {values.high}"
    return text if abs(values.low) < 0.1 * values.high else f"{text} + {values.low}"


def spread(values: Values) -> Values:
    """For weights: constants become draws around them, or a kernel could leave them out."""
    if values.kind == "constant" and values.low == 0:
        return Values("normal", 0.0, 0.02)
    if values.kind == "constant":
        return Values("normal", short(values.low), short(abs(values.low) * 0.1))
    return values
