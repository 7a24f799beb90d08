"""Which operators a candidate may call while its forward runs. This is early feedback, not the
check.

Operators that compute are replaced at torch's dispatcher by ones that raise, on every call and at
no cost to allowed calls. The judge decides by the kernels that it observed.
"""

from __future__ import annotations

import ctypes
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
            f"torch operator {name} is not allowed in forward: write a kernel for it, or, where it "
            "depends on weights and shapes only, do it once, in prepare() or the first call"
        )

    return refuse


def computing(device: str) -> list[tuple[str, str]]:
    """The operators of every namespace that compute on this device, each with its backend: dense,
    sparse or nested. Collecting them takes as long as replacing them, and needs no candidate."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [full for full in torch._C._dispatch_get_all_op_names() if not _allowed(full)]
    return [(key, full) for key in _backends(device) for full in names if has_kernel(full, key)]


def _allowed(full: str) -> bool:
    namespace, _, name = full.partition("::")
    return namespace == "aten" and name.split(".")[0] in ALLOWED


def forbid_operators(names: list[tuple[str, str]]) -> int:
    """Replaces these operators, each for its backend; returns their number. The replacement is
    permanent: no Python object owns the registrations, so no Python code can undo them."""
    refusals: dict[tuple[str, str], list[str]] = {}
    for key, full in names:
        namespace, _, name = full.partition("::")
        refusals.setdefault((key, namespace), []).append(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for (key, namespace), refused in refusals.items():
            library = torch._C._dispatch_library("IMPL", namespace, key, __file__, 0)
            for name in refused:
                library.impl(name, key, _refuse(f"{namespace}::{name}"), False)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))
    return len(names)


def _backends(device: str) -> list[str]:
    backend = "CUDA" if device.startswith("cuda") else "CPU"
    kinds = ("Sparse", "SparseCsr", "NestedTensor", "Quantized")
    others = ["MkldnnCPU"] if backend == "CPU" else []
    return [backend, *(f"{kind}{backend}" for kind in kinds), *others]
