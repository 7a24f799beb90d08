"""Outputs of a step are copied before its backward half, whatever mode of torch forward has entered.
Raises AssertionError where they are not; the last line says how many ways were tried.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from warpwright_oracle.channel import Refusal
from warpwright_oracle.steps import as_called


class Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "clone":
            return args[0]
        return func(*args, **(kwargs or {}))


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.clone.default:
            return args[0]
        return func(*args, **(kwargs or {}))


class Recording(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Late(torch.nn.Module):
    """Makes its output in backward."""

    def __init__(self, mode: Any) -> None:
        super().__init__()
        self.mode = mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.x, self.out = x, torch.zeros(3)
        if self.mode is not None:
            self.mode.__enter__()
        return self.out

    def backward(self, grad: torch.Tensor) -> torch.Tensor:
        if self.mode is not None:
            self.mode.__exit__(None, None, None)
        self.out.copy_(self.x)
        return grad * 2


def outputs(mode: Any) -> torch.Tensor | None:
    """None if the call is refused."""
    ones = torch.ones(3)
    try:
        return as_called(Late(mode), "eval:backward")([ones], [ones])[0]
    except Refusal:
        mode.__exit__(None, None, None)
        return None


def main() -> None:
    for mode in (Functions(), Dispatched()):
        assert outputs(mode) is None, type(mode)
        with Recording():
            assert outputs(mode) is None, type(mode)
    plain = outputs(None)
    assert plain is not None and not plain.any(), plain
    with Recording():
        plain = outputs(None)
        assert plain is not None and not plain.any(), plain
    with Functions():  # the way works
        own = torch.zeros(3)
        assert own.clone() is own
    with Dispatched():
        copied = own.clone()
        copied.fill_(1.0)
        assert own.all()
    print("tried 4")


if __name__ == "__main__":
    main()
