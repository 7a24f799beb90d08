"""Tasks that were judged with gradients: the judged step is the backward pass of autograd.

A step computes outputs and gradients in one call. Forward launches it with gradients of zero and
keeps the outputs; backward launches it again with the gradients that autograd has.
"""

from __future__ import annotations

from typing import Any

import torch

from . import _trees
from ._operators import Operator, _packed, split


class Step:
    """The operator ``task__forward(inputs..., weights..., ...) -> outputs``, whose backward pass is
    the operator of the step."""

    def __init__(self, step: Operator) -> None:
        self.step = step
        (whole,) = step.task["workloads"][:1]
        ((_, parts),) = whole["trees"][0].items()
        self.inputs = _count(parts[0])
        ((_, made),) = whole["tree"].items()
        self.outputs = _tensors(made[0])
        self.gradients = _tensors(made[1])
        self.places = self._places(whole)
        self.name = f"{step.name}__forward"
        self._register()
        namespace, name = self.name.split("::")
        self.call = getattr(getattr(torch.ops, namespace), name)

    def _places(self, whole: dict[str, Any]) -> list[int | None]:
        """Per input and weight: its place among the gradients."""
        model = self.step.template()
        forms = whole["inputs"][: self.inputs]
        wanted = [_differentiable(getattr(torch, form["dtype"])) for form in forms]
        places: list[int | None] = []
        for index, has in enumerate(wanted):
            places.append(sum(wanted[:index]) if has else None)
        named = [name for name, weight in model.named_parameters() if weight.requires_grad]
        names = list(model.state_dict())
        for position in self.step.task["weights"]:
            name = names[position]
            places.append(sum(wanted) + named.index(name) if name in named else None)
        return places

    def _register(self) -> None:
        count = self.inputs + self.step.weights
        given = ", ".join(f"Tensor given_{index}" for index in range(count))
        made = ", ".join(["Tensor"] * len(self.outputs))
        made = made if len(self.outputs) == 1 else f"({made})"
        schema = f"({given}, bool recompute=False, int workload=-1) -> {made}"
        operator = torch.library.custom_op(
            self.name,
            self._run,
            mutates_args=(),
            device_types=self.step.task["device"],
            schema=schema,
        )
        operator.register_fake(self._fake)
        operator.register_autograd(self._backward, setup_context=self._save)

    def _whole(self, tensors: list[torch.Tensor], grads: list[torch.Tensor]) -> list[torch.Tensor]:
        return [*tensors[: self.inputs], *grads, *tensors[self.inputs :]]

    def _zeros(self, tensors: list[torch.Tensor], index: int) -> list[torch.Tensor]:
        workload = self.step.choose(tensors[: self.inputs], index)
        zeros = []
        for form in workload.spec["inputs"][self.inputs :]:
            dtype = getattr(torch, form["dtype"])
            zeros.append(tensors[0].new_empty_strided(form["shape"], form["strides"], dtype=dtype))
        return [zero.zero_() for zero in zeros]

    def _run(self, *args: Any) -> Any:
        tensors, _, index = split(args)
        made = self.step.run(*self._whole(tensors, self._zeros(tensors, index)), False, index)
        return _packed([made[index] for index in self.outputs])

    def _fake(self, *args: Any) -> Any:
        tensors, _, index = split(args)
        made = self.step.choose(tensors[: self.inputs], index).results(tensors[0])
        return _packed([made[index] for index in self.outputs])

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensors, _, ctx.workload = split(inputs)
        ctx.save_for_backward(*tensors)
        made = [output] if isinstance(output, torch.Tensor) else list(output)
        whole = [result for result in made if not _differentiable(result.dtype)]
        if whole:
            ctx.mark_non_differentiable(*whole)

    def _backward(self, ctx: Any, *grads: torch.Tensor) -> Any:
        tensors = list(ctx.saved_tensors)
        workload = self.step.choose(tensors[: self.inputs], ctx.workload)
        (whole,) = self.step.task["workloads"][:1]
        dtypes = [getattr(torch, whole["results"][index]["dtype"]) for index in self.outputs]
        kept = [grad for grad, dtype in zip(grads, dtypes, strict=True) if _differentiable(dtype)]
        forms = workload.spec["inputs"][self.inputs :]
        laid = []
        for grad, form in zip(kept, forms, strict=True):
            dtype = getattr(torch, form["dtype"])
            made = grad.new_empty_strided(form["shape"], form["strides"], dtype=dtype)
            laid.append(made.copy_(grad))
        result = self.step.call(*self._whole(tensors, laid), False, ctx.workload)
        results = [result] if isinstance(result, torch.Tensor) else list(result)
        gradients = [results[index] for index in self.gradients]
        needs = ctx.needs_input_grad[: len(tensors)]
        made = [
            gradients[place] if place is not None and need else None
            for place, need in zip(self.places, needs, strict=True)
        ]
        return tuple([*made, None, None])

    def result(self, tensors: list[torch.Tensor], index: int) -> Any:
        """What forward of the reference returns."""
        made = self.call(*tensors, False, index)
        results = [made] if isinstance(made, torch.Tensor) else list(made)
        workload = self.step.workloads[index]
        ((_, parts),) = workload.spec["tree"].items()
        placed: dict[int, torch.Tensor] = dict(zip(self.outputs, results, strict=True))
        return _trees.build(parts[0], placed)


def _differentiable(dtype: torch.dtype) -> bool:
    return dtype.is_complex or (dtype.is_floating_point and dtype.itemsize > 1)


def _tensors(tree: Any) -> list[int]:
    """The tensors of a tree, in order of appearance."""
    ((kind, body),) = tree.items()
    if kind == "tensor":
        return [body]
    if kind in ("list", "tuple"):
        return [index for item in body for index in _tensors(item)]
    if kind == "dict":
        return [index for _, item in body for index in _tensors(item)]
    return []


def _count(tree: Any) -> int:
    return len(_tensors(tree))
