"""Whether a reference computes. One that only moves and fills values needs no kernel."""

from __future__ import annotations

from typing import Any

import torch

from .dispatch import OperatorMode

MOVES = {
    "_local_scalar_dense", "_reshape_alias_copy", "_to_copy", "_unsafe_view", "arange",
    "block_diag", "cat", "clone", "constant_pad_nd", "contiguous", "copy", "copy_", "diag_embed",
    "empty", "empty_like", "empty_permuted", "empty_strided", "eye", "fill", "fill_", "flip",
    "full", "full_like", "gather", "index", "index_put", "index_put_", "index_select", "lift_fresh",
    "lift_fresh_copy", "masked_fill", "masked_fill_", "new_empty", "new_empty_strided", "new_full",
    "new_ones", "new_zeros", "one_hot", "ones", "ones_like", "reflection_pad1d", "reflection_pad2d",
    "reflection_pad3d", "repeat", "repeat_interleave", "replication_pad1d", "replication_pad2d",
    "replication_pad3d", "resize_", "roll", "scalar_tensor", "scatter", "select_scatter", "set_",
    "slice_scatter", "stack", "tril", "triu", "zero_", "zeros", "zeros_like",
}  # fmt: skip
"""Operators that return existing values or constants."""
MINDS = {"isfinite", "isinf", "isnan", "isneginf", "isposinf", "nan_to_num", "nansum", "nanmedian"}
"""Operators that distinguish non-finite numbers from others."""


class Computes(OperatorMode):
    """Examines every operator of a forward. ``found``: whether one of them computes values.
    ``minds``: whether one distinguishes non-finite numbers from others."""

    def __init__(self) -> None:
        super().__init__()
        self.found = self.minds = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.found = self.found or not _moves(func) or _adds_up(func, args, kwargs)
        self.minds = self.minds or func._schema.name.removeprefix("aten::").rstrip("_") in MINDS
        return func(*args, **kwargs)


def _moves(func: torch._ops.OpOverload) -> bool:
    schema = func._schema
    returned = [result.alias_info for result in schema.returns]
    view = bool(returned) and all(alias and not alias.is_write for alias in returned)
    return view or schema.name.removeprefix("aten::") in MOVES


def _adds_up(func: torch._ops.OpOverload, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether values stored at one place are summed or otherwise reduced."""
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    return bool(given.get("accumulate")) or given.get("reduce") is not None
