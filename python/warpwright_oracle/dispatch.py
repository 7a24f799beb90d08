"""The base class of the modes that see every operator. It does not import torch's compiler.

Torch wraps ``__torch_dispatch__`` of each mode so that its compiler leaves the frame alone, and
imports the compiler for that at the mode's first operator. The import takes as long as that of the
rest of torch, and an oracle compiles nothing unless its reference does.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class OperatorMode(TorchDispatchMode):
    """A mode whose ``__torch_dispatch__`` is never compiled."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__torch_dispatch__" in cls.__dict__:
            cls.__torch_dispatch__ = _uncompiled(cls.__dict__["__torch_dispatch__"])  # type: ignore[method-assign]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch wraps ``__torch_dispatch__``; asked by ``TorchDispatchMode``."""
        return False


def _uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which the compiler leaves alone if it has been imported by then."""
    disabled: list[Callable[..., Any]] = []

    @functools.wraps(function)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        compiler = sys.modules.get("torch._dynamo")
        if compiler is None or not hasattr(compiler, "disable"):
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(compiler.disable(function))
        return disabled[0](*args, **kwargs)

    return dispatch
