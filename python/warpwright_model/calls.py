"""One call of a module: its tensors, the nesting around them, and what makes two calls alike."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from .failure import Untraceable

CONSTANTS = (bool, int, float, str, type(None), torch.dtype)
"""What a task may fix besides tensors."""
LONGEST_TEXT = 200


class Nest:
    """Values without their tensors. Each tensor has a number; equal numbers are one tensor."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.names: list[str] = []
        self.numbers: dict[int, int] = {}

    def take(self, value: Any, name: str) -> Any:
        """``value`` with numbers in place of tensors. ``name`` says where it is."""
        if isinstance(value, torch.Tensor):
            if type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
                raise Untraceable(f"{name} is a {type(value).__name__}")
            if value.layout is not torch.strided:
                raise Untraceable(f"{name} is a sparse tensor")
            if id(value) not in self.numbers:
                self.numbers[id(value)] = len(self.tensors)
                self.tensors.append(value)
                self.names.append(name)
            return ("tensor", self.numbers[id(value)])
        if type(value) in (tuple, list):
            items = [self.take(item, f"{name}_{at}") for at, item in enumerate(value)]
            return (type(value).__name__, items)
        if type(value) is dict:
            if not all(isinstance(key, str) for key in value):
                raise Untraceable(f"{name} is a dict whose keys are not all strings")
            return ("dict", {key: self.take(item, f"{name}_{key}") for key, item in value.items()})
        if type(value) not in CONSTANTS or (type(value) is str and len(value) > LONGEST_TEXT):
            raise Untraceable(f"{name} is a {type(value).__name__}")
        return ("constant", value)


def restored(nest: Any, tensors: list[torch.Tensor]) -> Any:
    """The values that ``Nest.take`` was given, with these tensors."""
    kind, inner = nest
    if kind == "tensor":
        return tensors[inner]
    if kind == "tuple":
        return tuple(restored(item, tensors) for item in inner)
    if kind == "list":
        return [restored(item, tensors) for item in inner]
    if kind == "dict":
        return {key: restored(item, tensors) for key, item in inner.items()}
    return inner


def plain(nest: Any) -> Any:
    """The nesting as JSON."""
    kind, inner = nest
    if kind in ("tuple", "list"):
        return {"kind": kind, "items": [plain(item) for item in inner]}
    if kind == "dict":
        return {"kind": kind, "keys": list(inner), "items": [plain(v) for v in inner.values()]}
    if kind == "tensor":
        return {"kind": kind, "index": inner}
    return {"kind": kind, "value": repr(inner)}


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, also where elements overlap or memory has gaps."""
    tensor = tensor.detach()
    pairs = list(zip(tensor.shape, tensor.stride(), strict=True))
    extent = 1 + sum((size - 1) * stride for size, stride in pairs) if tensor.numel() else 0
    memory = tensor.as_strided((extent,), (1,)).clone() if extent else tensor.new_empty(0)
    return memory.as_strided(tensor.shape, tensor.stride())


class Call:
    """The arguments of one call of a module."""

    def __init__(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        nest = Nest()
        positional = parameter_names(module, len(args))
        self.args = [nest.take(v, n) for v, n in zip(args, positional, strict=True)]
        self.kwargs = {name: nest.take(value, name) for name, value in kwargs.items()}
        self.tensors = nest.tensors
        self.names = nest.names

    def key(self) -> str:
        """Equal keys: a kernel for one call serves the other."""
        forms = [(str(t.dtype), tuple(t.shape), t.stride()) for t in self.tensors]
        return repr((self.args, self.kwargs, forms))

    def form(self) -> str:
        """The part of the key that calls with other shapes share."""
        forms = [(str(t.dtype), t.dim()) for t in self.tensors]
        return repr((self.args, self.kwargs, forms))

    def keep(self) -> None:
        """Copies the tensors, before the model changes them."""
        self.tensors = [copied(tensor) for tensor in self.tensors]

    def arguments(self, tensors: list[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with these tensors."""
        named = {name: restored(nest, tensors) for name, nest in self.kwargs.items()}
        return [restored(nest, tensors) for nest in self.args], named


def parameter_names(module: torch.nn.Module, count: int) -> list[str]:
    """Names of the first ``count`` positional parameters of ``forward``."""
    names: list[str] = []
    try:
        for parameter in inspect.signature(module.forward).parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                names.append(parameter.name)
    except (TypeError, ValueError):
        pass
    return [names[at] if at < len(names) else f"input{at}" for at in range(count)]
