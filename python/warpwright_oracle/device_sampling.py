"""Samples purely random inputs in place, in the arena on the device.

Most references return ``[torch.randn(ROWS, FEATURES), ...]``, and a timed window has hundreds of
such sets. If the host created, placed and copied each tensor, it would take longer than the device
takes to compute. Sampling in place gives the same numbers with a few calls and no copy.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from typing import Any

import torch

from .arena import ALIGN, Memory
from .reference import Reference
from .tensors import Place, flatten, place

MOST = 64 << 20
"""Largest set in bytes; for larger sets the host keeps up with the device."""
KINDS = {"randn": "normal_", "rand": "uniform_"}


@dataclass(frozen=True)
class DeviceSampling:
    """How to sample one set of inputs: the distribution and the place of each tensor."""

    tree: Any
    kinds: list[str]
    tensors: list[Place]
    """The place of each tensor, relative to offset 0."""
    bytes: int
    generator: torch.Generator

    def gives(self, seed: int, tensors: list[torch.Tensor]) -> bool:
        """Whether sampling with this seed gives exactly these tensors, bit for bit."""
        self.generator.manual_seed(seed)
        flat = [torch.empty(t.numel(), dtype=t.dtype, device=t.device) for t in tensors]
        for kind, tensor in zip(self.kinds, flat, strict=True):
            getattr(tensor, kind)()
        pairs = zip(flat, tensors, strict=True)
        return all(torch.equal(mine, tensor.view(-1)) for mine, tensor in pairs)

    def make(self, memory: Memory, seed: int, offset: int) -> tuple[list[Place], int]:
        """Samples a set at ``offset``; returns its places and the next offset."""
        if offset + self.bytes > memory.size:
            raise MemoryError(f"the arena of {memory.size} bytes is too small for a set of inputs")
        self.generator.manual_seed(seed)
        places = []
        for kind, like in zip(self.kinds, self.tensors, strict=True):
            at = like | {"offset": like["offset"] + offset}
            getattr(memory.flat(at), kind)()
            places.append(at)
        return places, offset + self.bytes


def device_sampling(reference: Reference, seed: int, given: Any) -> DeviceSampling | None:
    """How to sample the inputs that ``get_inputs()`` returns; ``given`` is its result for ``seed``.
    None if the function does anything but sample, or if sampling in place gives other numbers."""
    kinds = _kinds(reference)
    tensors: list[torch.Tensor] = []
    tree = flatten(given, tensors)
    device = reference.device
    if kinds is None or len(kinds) != len(tensors):
        return None
    if not all(t.is_contiguous() and t.is_floating_point() and t.numel() for t in tensors):
        return None
    places, offset = [], 0
    for tensor in tensors:
        places.append(place(tensor, offset))
        offset += -(-places[-1]["bytes"] // ALIGN) * ALIGN
    if offset > MOST:
        return None
    if device.type == "cuda":
        generator = torch.cuda.default_generators[device.index or 0]
    else:
        generator = torch.default_generator
    found = DeviceSampling(tree, kinds, places, offset, generator)
    return found if found.gives(seed, tensors) else None


def _kinds(reference: Reference) -> list[str] | None:
    """The in-place sampling method of each tensor, from the source of ``get_inputs``."""
    module = reference.module
    try:
        (function,) = ast.parse(inspect.getsource(module.get_inputs)).body
    except (OSError, TypeError, ValueError, SyntaxError):
        return None
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return None
    if (
        getattr(module, "torch", None) is not torch
        or inspect.signature(module.get_inputs).parameters
    ):
        return None
    match function.body:
        case [ast.Return(value=ast.List(elts=calls) | ast.Tuple(elts=calls))]:
            kinds = [_kind(call) for call in calls]
            return None if None in kinds else kinds
    return None


def _kind(call: ast.expr) -> str | None:
    match call:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="torch"), attr=name), args=sizes, keywords=[]
        ) if name in KINDS and all(isinstance(size, ast.Name | ast.Constant) for size in sizes):
            return KINDS[name]
    return None
