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
METADATA = {
    "as_strided",
    "view",
    "_reshape_alias",
    "unfold",
    "is_set_to",
    "is_pinned",
    "view_as_real",
    "view_as_complex",
}
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


def computing(device: str) -> list[str]:
    """The operators that compute on this device's backend. Takes as long as refusing them does, and
    needs no candidate."""
    key = _backend(device)
    names = (full for full in torch._C._dispatch_get_all_op_names() if full.startswith("aten::"))
    bare = (full.removeprefix("aten::") for full in names)
    candidates = [name for name in bare if name.split(".")[0] not in ALLOWED]
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return [name for name in candidates if has_kernel(f"aten::{name}", key)]


def forbid_operators(device: str, names: list[str]) -> int:
    """Replaces these operators of this device's backend; how many were."""
    global _library
    _library = torch.library.Library("aten", "IMPL", _backend(device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            _library.impl(name, _refuse(name))
    return len(names)


def _backend(device: str) -> str:
    return "CUDA" if device.startswith("cuda") else "CPU"
