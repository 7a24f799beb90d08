"""Samples purely random inputs in place, in the arena on the device.

Most references return ``[torch.randn(ROWS, FEATURES), ...]``, and a timed window has hundreds of
such sets. If the host created, placed and copied each tensor, it would take longer than the device
takes to compute. Sampling in place needs a few calls and no copy. On a GPU the judge's own kernel
samples all sets of a window at once: other numbers of the same distributions.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from typing import Any

import torch

from .arena import ALIGN, Memory
from .reference import Reference
from .sampler import Sampler
from .tensors import Place, flatten, place, unflatten

MOST = 64 << 20
"""Largest set in bytes that torch samples; for larger sets the host keeps up with the device."""
MOST_OF_OURS = 4 << 30
"""The same where the judge's own kernel does: one more tensor of it is needed to find out."""
NORMAL = "normal_"
KINDS = {"randn": NORMAL, "rand": "uniform_"}


@dataclass(frozen=True)
class DeviceSampling:
    """How to sample one set of inputs: the distribution and the place of each tensor."""

    tree: Any
    kinds: list[str]
    tensors: list[Place]
    """The place of each tensor, relative to offset 0."""
    bytes: int
    generator: torch.Generator
    sampler: Sampler | None
    """Samples on a GPU, if all tensors are such as it fills."""

    def gives(self, seed: int, tensors: list[torch.Tensor]) -> bool:
        """Whether torch, sampling with this seed, gives exactly these tensors, bit for bit."""
        self.generator.manual_seed(seed)
        for kind, tensor in zip(self.kinds, tensors, strict=True):
            mine = torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
            if not torch.equal(getattr(mine, kind)(), tensor.view(-1)):
                return False
        return True

    def make(
        self, memory: Memory, seeds: list[int], offsets: list[int]
    ) -> list[tuple[list[Place], int]]:
        """Samples a set at each offset; returns its places and the offset behind it."""
        made = []
        for offset in offsets:
            if offset + self.bytes > memory.size:
                text = f"the arena of {memory.size} bytes is too small for a set of inputs"
                raise MemoryError(text)
            places = [like | {"offset": like["offset"] + offset} for like in self.tensors]
            made.append((places, offset + self.bytes))
        if self.sampler is not None:
            self.sampler.fill(
                [
                    (memory.base + at["offset"], at["bytes"] // 4, seed, i, kind == NORMAL)
                    for seed, (places, _) in zip(seeds, made, strict=True)
                    for i, (kind, at) in enumerate(zip(self.kinds, places, strict=True))
                ]
            )
            return made
        for seed, (places, _) in zip(seeds, made, strict=True):
            self.generator.manual_seed(seed)
            for kind, at in zip(self.kinds, places, strict=True):
                getattr(memory.flat(at), kind)()
        return made

    def draw(self, device: torch.device, seed: int) -> Any:
        """A set in memory of its own."""
        room = torch.empty(self.bytes + ALIGN, dtype=torch.uint8, device=device)
        base = -(-room.data_ptr() // ALIGN) * ALIGN
        memory = Memory(device, base, self.bytes)
        ((places, _),) = self.make(memory, [seed], [0])
        return unflatten(self.tree, [memory.view(at).clone() for at in places])


def device_sampling(
    reference: Reference, seed: int, given: Any, sampler: Sampler | None = None
) -> DeviceSampling | None:
    """How to sample the inputs that ``get_inputs()`` returns; ``given`` is its result for ``seed``.
    None if the function does anything but sample: if torch, sampling in place, gives other numbers.
    """
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
    if not all(t.dtype == torch.float32 for t in tensors):
        sampler = None
    if offset > (MOST if sampler is None else MOST_OF_OURS):
        return None
    if device.type == "cuda":
        generator = torch.cuda.default_generators[device.index or 0]
    else:
        generator = torch.default_generator
    found = DeviceSampling(tree, kinds, places, offset, generator, sampler)
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
