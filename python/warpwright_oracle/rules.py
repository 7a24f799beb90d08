"""What a candidate may call while its forward runs: early feedback, never the gate.

Operators that compute are replaced at torch's dispatcher by ones that refuse, on every call and at
no cost to calls that are allowed. What counts in the end is what the judge saw run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import torch

ALLOCATION = {"empty", "empty_strided", "zero_", "fill_", "set_", "resize_", "_resize_output_"}
METADATA = {"as_strided", "view", "_reshape_alias", "unfold", "is_set_to", "is_pinned"}
MOVEMENT = {"copy_", "_copy_from", "_to_copy", "record_stream", "_local_scalar_dense"}
ALLOWED = ALLOCATION | METADATA | MOVEMENT


class ForbiddenCall(RuntimeError):
    """A torch operator that computes was called."""


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise ForbiddenCall(
            f"torch operator aten::{name} is not allowed in forward: write a kernel for it"
        )

    return refuse


_library: torch.library.Library | None = None


def forbid_operators(device: str) -> int:
    """Replaces every computing operator of this device's backend; how many were."""
    global _library
    key = "CUDA" if device.startswith("cuda") else "CPU"
    _library = torch.library.Library("aten", "IMPL", key)
    count = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for full in torch._C._dispatch_get_all_op_names():
            if not full.startswith("aten::"):
                continue
            name = full.removeprefix("aten::")
            if name.split(".")[0] in ALLOWED:
                continue
            if torch._C._dispatch_has_kernel_for_dispatch_key(full, key):
                _library.impl(name, _refuse(name))
                count += 1
    return count
