"""Replaces the ``forward`` of a model's modules by kernels, and puts it back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def matched(nest: dict[str, Any], value: Any, tensors: dict[int, torch.Tensor]) -> bool:
    """Whether a value has the nesting and the constants of a region; collects its tensors."""
    kind = nest["kind"]
    if kind == "tensor":
        if not isinstance(value, torch.Tensor):
            return False
        return tensors.setdefault(nest["index"], value) is value
    if kind == "constant":
        return not isinstance(value, torch.Tensor) and repr(value) == nest["value"]
    if kind == "dict":
        return (
            type(value) is dict
            and list(value) == nest["keys"]
            and all(map_matched(nest["items"], list(value.values()), tensors))
        )
    wanted = tuple if kind == "tuple" else list
    return type(value) is wanted and all(map_matched(nest["items"], value, tensors))


def map_matched(nests: list[Any], values: Any, tensors: dict[int, torch.Tensor]) -> list[bool]:
    """Whether each value matches; one ``False`` if their number differs."""
    if len(nests) != len(values):
        return [False]
    return [matched(nest, value, tensors) for nest, value in zip(nests, values, strict=True)]


def rebuilt(nest: dict[str, Any], tensors: list[torch.Tensor]) -> Any:
    """The value that a module returns, of the tensors that its kernels return."""
    kind = nest["kind"]
    if kind == "tensor":
        return tensors[nest["index"]]
    if kind == "constant":
        return CONSTANTS[nest["value"]]
    items = [rebuilt(item, tensors) for item in nest["items"]]
    if kind == "dict":
        return dict(zip(nest["keys"], items, strict=True))
    return tuple(items) if kind == "tuple" else items


CONSTANTS = {"None": None, "True": True, "False": False}
"""The constants that a region may return."""


def returns_known(nest: dict[str, Any]) -> bool:
    """Whether a region's result can be put together again."""
    if nest["kind"] == "constant":
        return nest["value"] in CONSTANTS
    return all(returns_known(item) for item in nest.get("items", []))


class Dispatcher:
    """The new ``forward`` of a module: the first patch that fits a call takes it."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.own = module.forward
        self.patches: list[Patch] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """One call of the module."""
        for patch in self.patches:
            inputs = patch.given(args, kwargs)
            if inputs is not None:
                return patch.result(inputs)
        for patch in self.patches:
            patch.fell_back += 1
        return self.own(*args, **kwargs)


class Patch:
    """The kernels of a region on one module, for the calls that the region saw."""

    def __init__(
        self, module: torch.nn.Module, region: dict[str, Any], kernels: Callable[..., Any]
    ) -> None:
        self.module = module
        self.region = region
        self.kernels = kernels
        self.replaced = 0
        self.fell_back = 0
        self.indices = [item["index"] for item in region["inputs"]]
        count = len(region["workloads"])
        self.forms = {
            tuple((tuple(i["shapes"][at]), tuple(i["strides"][at])) for i in region["inputs"])
            for at in range(count)
        }
        self.dtypes = [getattr(torch, item["dtype"]) for item in region["inputs"]]

    def given(self, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor] | None:
        """The inputs of the kernels; None if the region did not see such a call."""
        region = self.region
        tensors: dict[int, torch.Tensor] = {}
        # By name: records sort them.
        if set(kwargs) != set(region["keywords"]):
            return None
        fits = map_matched(region["arguments"], args, tensors)
        named = [kwargs[name] for name in region["keywords"]]
        fits += map_matched(list(region["keywords"].values()), named, tensors)
        if not all(fits):
            return None
        inputs = [tensors[index] for index in self.indices]
        form = tuple((tuple(tensor.shape), tensor.stride()) for tensor in inputs)
        same = [tensor.dtype for tensor in inputs] == self.dtypes
        return inputs if same and form in self.forms else None

    def result(self, inputs: list[torch.Tensor]) -> Any:
        """What the module returns, by the kernels."""
        self.replaced += 1
        found = self.kernels(*inputs)
        return rebuilt(self.region["outputs"], [found] if torch.is_tensor(found) else list(found))

    def apply(self) -> None:
        """Puts it in front of the module's own ``forward``."""
        dispatcher = vars(self.module).get("forward")
        if not isinstance(dispatcher, Dispatcher):
            dispatcher = Dispatcher(self.module)
            self.module.forward = dispatcher  # type: ignore[method-assign]
        if self not in dispatcher.patches:
            dispatcher.patches.append(self)

    def undo(self) -> None:
        """Removes it; the last one puts the module's own ``forward`` back."""
        dispatcher = vars(self.module).get("forward")
        if not isinstance(dispatcher, Dispatcher) or self not in dispatcher.patches:
            return
        dispatcher.patches.remove(self)
        if not dispatcher.patches:
            del self.module.forward
            if self.module.forward != dispatcher.own:
                self.module.forward = dispatcher.own  # type: ignore[method-assign]


class Patches:
    """The patches of one region, on all of its modules."""

    def __init__(
        self,
        model: torch.nn.Module,
        region: dict[str, Any],
        make: Callable[[torch.nn.Module], Callable[..., Any]],
    ) -> None:
        self.task = region["task"]
        self.all = []
        for path in region["modules"]:
            module = model.get_submodule(path)
            self.all.append(Patch(module, region, make(module)))

    def apply(self) -> None:
        """Patches every module."""
        for patch in self.all:
            patch.apply()

    def undo(self) -> None:
        """Unpatches every module."""
        for patch in self.all:
            patch.undo()

    def counts(self) -> tuple[int, int]:
        """Calls that took the kernels, and calls that took the module's own ``forward``."""
        return sum(p.replaced for p in self.all), sum(p.fell_back for p in self.all)
