"""Makes tasks of one module: one for all shapes where that is possible, else one for each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from . import check
from .calls import Call, plain
from .emit import Body, emit
from .failure import Untraceable
from .names import identifier
from .observe import Node
from .source import Input, Variant, source
from .trace import Traced, trace

LONGEST_NAME = 40


@dataclass
class Region:
    """A task, and the modules that it stands for."""

    owner: Node
    source: str
    body: Body
    outputs: Any
    variants: list[Variant]
    members: list[Node] = field(default_factory=list)
    share: float = 0.0
    name: str = ""

    def sets(self) -> list[dict[str, Any]]:
        """Arguments of ``get_inputs`` in each variant."""
        parameters: dict[str, list[list[int]]] = {}
        for name, index in self.body.inputs:
            item = Input(name, [variant.call.tensors[index] for variant in self.variants])
            parameters.update(item.parameters())
        return [
            {name: values[at] for name, values in parameters.items()}
            for at in range(len(self.variants))
        ]

    def part(self, node: Node, input_set: str) -> float:
        """The part of a module's calls on an input set that this region serves."""
        calls = node.calls.get(input_set, [])
        mine = [call for call in calls if call.form() == self.variants[0].call.form()]
        keys = {variant.call.key() for variant in self.variants}
        mine = [call for call in mine if call.key() in keys]
        return len(mine) / len(calls) if calls else 0.0

    def described(self) -> dict[str, Any]:
        """The region as JSON."""
        call = self.variants[0].call
        counts: dict[str, int] = {}
        for member in self.members:
            for name, count in member.counts.items():
                if self.part(member, name) > 0:
                    counts[name] = counts.get(name, 0) + count
        inputs = []
        for name, index in self.body.inputs:
            tensors = [variant.call.tensors[index] for variant in self.variants]
            inputs.append(
                {
                    "name": name,
                    "index": index,
                    "dtype": str(tensors[0].dtype).removeprefix("torch."),
                    "shapes": [list(tensor.shape) for tensor in tensors],
                    "strides": [list(tensor.stride()) for tensor in tensors],
                }
            )
        return {
            "task": self.name,
            "class": identifier(type(self.owner.module).__name__, "Module"),
            "share": self.share,
            "modules": [member.path for member in self.members],
            "calls": counts,
            "operators": self.body.operators,
            "workloads": [variant.name for variant in self.variants],
            "inputs": inputs,
            "weights": [{"name": n, "path": s.path} for n, s in self.body.weights],
            "arguments": [plain(nest) for nest in call.args],
            "keywords": {name: plain(nest) for name, nest in call.kwargs.items()},
            "outputs": plain(self.outputs),
        }


def variants_of(node: Node) -> list[Variant]:
    """The different calls of a module, named by their input sets."""
    found: list[Variant] = []
    keys: set[str] = set()
    for input_set, calls in node.calls.items():
        for number, call in enumerate(calls, 1):
            if call.key() not in keys:
                keys.add(call.key())
                name = re.sub(r"[^0-9A-Za-z_.-]+", "_", input_set)[:LONGEST_NAME] or "inputs"
                name = name if number == 1 else f"{name}-{number}"
                taken = {variant.name for variant in found}
                while name in taken:
                    name += "_"
                found.append(Variant(name, call))
    return found


def traced_body(node: Node, call: Call, dynamic: list[tuple[int, int]]) -> tuple[Traced, Body]:
    """The graph of one call and its text."""
    traced = trace(node.module, call, dynamic)
    return traced, emit(traced, call.names)


def changing(variants: list[Variant]) -> list[tuple[int, int]]:
    """The inputs and dimensions whose sizes differ between the variants."""
    first = variants[0].call.tensors
    return [
        (index, dim)
        for index, tensor in enumerate(first)
        for dim in range(tensor.dim())
        if any(v.call.tensors[index].shape[dim] != tensor.shape[dim] for v in variants)
    ]


def together(node: Node, variants: list[Variant], title: str, limit: int) -> Region:
    """One region for calls of several shapes."""
    traced, body = traced_body(node, variants[0].call, [])
    if body.operators > limit:
        raise Untraceable(f"it has {body.operators} operators, more than {limit}")
    if not body.operators:
        raise Untraceable("it computes nothing")
    others = [traced_body(node, variant.call, [])[1] for variant in variants[1:]]
    if any(other.lines != body.lines for other in others):
        dims = changing(variants)
        # A size of one is never a symbol.
        sizes = [[v.call.tensors[index].shape[dim] for index, dim in dims] for v in variants]
        usable = [at for at, row in enumerate(sizes) if all(size > 1 for size in row)]
        if not usable:
            raise Untraceable("its graph differs between the input sets")
        order = max(usable, key=lambda at: len(set(sizes[at])))
        traced, body = traced_body(node, variants[order].call, dims)
    region = Region(node, "", body, traced.outputs, variants)
    if not any(region.sets()):
        region.variants = variants[:1]  # they differ in what the module does not use
    region.source = source(title, body, region.variants)
    check.same(region.source, body, node.module, [variant.call for variant in variants])
    check.same_inputs(region.source, body, region.variants, region.sets())
    region.variants = variants if any(region.sets()) else variants[:1]
    return region


def regions_of(node: Node, title: str, limit: int, separate: bool) -> list[Region]:
    """The regions of a module; several if its calls cannot share one task, or must not."""
    if node.refused is not None:
        raise Untraceable(node.refused)
    forms: dict[str, list[Variant]] = {}
    for variant in variants_of(node):
        forms.setdefault(variant.call.form(), []).append(variant)
    regions = []
    for variants in forms.values():
        if separate and len(variants) > 1:
            regions.extend(together(node, [variant], title, limit) for variant in variants)
            continue
        try:
            regions.append(together(node, variants, title, limit))
        except Untraceable:
            if len(variants) == 1:
                raise
            regions.extend(together(node, [variant], title, limit) for variant in variants)
    return regions
