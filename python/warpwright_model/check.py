"""Executes a task's source and compares it with the module that it was made of."""

from __future__ import annotations

import types
from typing import Any

import torch

from .calls import Call, Nest
from .emit import Body
from .failure import Untraceable, told
from .trace import weights

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
"""Of the largest expected number: kernels may choose another order of additions."""


def executed(source: str) -> types.ModuleType:
    """The task's module."""
    module = types.ModuleType("warpwright_region")
    exec(compile(source, "region.py", "exec"), module.__dict__)
    return module


def made(module: types.ModuleType, device: torch.device | str) -> torch.nn.Module:
    """The task's model."""
    return module.Model().to(device).eval()


def transfer(model: torch.nn.Module, body: Body, owner: torch.nn.Module) -> None:
    """Gives the task's model the weights of a module."""
    tensors = dict(weights(owner))
    with torch.no_grad():
        for name, weight in body.weights:
            own, given = getattr(model, name), tensors.get(weight.path)
            if given is None or given.shape != own.shape or given.dtype != own.dtype:
                raise Untraceable(f"its weight {weight.path} differs from that of the region")
            own.copy_(given)


def compare(found: Any, expected: list[torch.Tensor]) -> None:
    """Raises if the results of a task differ from those of the module."""
    found = list(found) if isinstance(found, tuple) else [found]
    if len(found) != len(expected):
        raise Untraceable("its task returns another number of tensors")
    for mine, wanted in zip(found, expected, strict=True):
        if mine.shape != wanted.shape or mine.dtype != wanted.dtype:
            raise Untraceable("its task returns another shape or dtype")
        if not wanted.numel():
            continue
        if not (wanted.is_floating_point() or wanted.is_complex()):
            if not torch.equal(mine, wanted):
                raise Untraceable("its task returns other values")
            continue
        relative = TOLERANCE.get(wanted.dtype, 1e-5)
        largest = wanted.abs().nan_to_num(0.0, 0.0, 0.0).max().item()
        close = torch.allclose(mine, wanted, rtol=0, atol=relative * largest, equal_nan=True)
        if not close:
            raise Untraceable("its task returns other values")


def results(module: torch.nn.Module, call: Call) -> tuple[Any, list[torch.Tensor]]:
    """The nesting and the tensors of a module's result."""
    args, kwargs = call.arguments([tensor.clone() for tensor in call.tensors])
    nest = Nest()
    with torch.no_grad():
        nested = nest.take(module(*args, **kwargs), "its result")
    return nested, nest.tensors


def same(source: str, body: Body, owner: torch.nn.Module, calls: list[Call]) -> None:
    """Raises unless the task computes what the module computes, on each of these calls."""
    try:
        device = calls[0].tensors[0].device
        model = made(executed(source), device)
        transfer(model, body, owner)
        for call in calls:
            given = [call.tensors[index].clone() for _, index in body.inputs]
            with torch.no_grad():
                found = model(*given)
            compare(found, results(owner, call)[1])
    except Untraceable:
        raise
    except Exception as error:
        raise Untraceable(f"its task raised {told(error)}") from error


def same_inputs(source: str, body: Body, variants: list[Any], sets: list[dict[str, Any]]) -> None:
    """Raises unless ``get_inputs`` makes tensors of the forms seen, which the model accepts."""
    try:
        module = executed(source)
        for variant, arguments in zip(variants, sets, strict=True):
            given = module.get_inputs(**arguments)
            for tensor, (_, index) in zip(given, body.inputs, strict=True):
                seen = variant.call.tensors[index]
                steps = [
                    a == b or size == 1
                    for a, b, size in zip(tensor.stride(), seen.stride(), seen.shape, strict=True)
                ]
                if tensor.dtype != seen.dtype or tensor.shape != seen.shape or not all(steps):
                    raise Untraceable("its task makes inputs of other forms")
            with torch.no_grad():
                model = made(module, variant.call.tensors[0].device)
                model(*(tensor.to(variant.call.tensors[0].device) for tensor in given))
    except Untraceable:
        raise
    except Exception as error:
        raise Untraceable(f"its task raised {told(error)}") from error
