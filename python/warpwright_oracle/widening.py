"""Runs a reference in float64 although it names float32 itself.

``positions.float()`` and ``torch.zeros(n, dtype=torch.float32)`` give float32 regardless of the
weights, and a product with float64 weights then fails. Under ``Widening``, operators that request
float32, or return it by default, return float64.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from .dispatch import OperatorMode

NARROW = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def _wide(value: Any) -> Any:
    return NARROW.get(value, value) if isinstance(value, torch.dtype) else value


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in NARROW:
        return value.to(NARROW[value.dtype])
    return value


class Widening(OperatorMode):
    """Makes operators without float32 operands return no float32 results."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(_wide, (args, kwargs or {}))
        results = func(*args, **kwargs)
        given = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
        if any(tensor.dtype in NARROW for tensor in given):
            return results
        return tree_map(_widened, results)
