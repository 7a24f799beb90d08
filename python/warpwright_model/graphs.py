"""The model in a CUDA graph, as a service runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from .failure import Failed
from .loading import InputSet
from .observe import run

WARM_UPS = 3
"""Calls before the capture, in which libraries allocate what they keep."""


def own(value: Any) -> Any:
    """A tensor's copy with its strides; the tensor itself if its elements share memory."""
    if not isinstance(value, torch.Tensor) or overlaps(value):
        return value
    copy = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return copy.copy_(value)


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether two of its elements may be the same memory: a dimension of more than one has the
    stride 0."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return any(size > 1 and stride == 0 for size, stride in pairs)


def rolled(value: Any) -> Any:
    """A tensor's numbers in another order."""
    if not isinstance(value, torch.Tensor) or overlaps(value):
        return value
    return own(value).copy_(value.flatten().roll(1).view(value.shape))


class Captured:
    """One forward pass on copies of an input set, captured as it is patched now."""

    def __init__(self, model: torch.nn.Module, given: InputSet) -> None:
        self.inputs = InputSet(given.name, {})
        self.inputs.args, self.inputs.kwargs = tree_map(own, (given.args, given.kwargs))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                run(model, self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = run(model, self.inputs)
        self.pairs = self.paired(given)

    def paired(self, given: InputSet) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The copies and what they are copies of."""
        mine = tree_leaves((self.inputs.args, self.inputs.kwargs))
        theirs = tree_leaves((given.args, given.kwargs))
        pairs = zip(mine, theirs, strict=True)
        return [(a, b) for a, b in pairs if isinstance(a, torch.Tensor) and a is not b]

    def __call__(self) -> Any:
        """Copies the inputs, as `reduce-overhead` does, and launches the graph."""
        for mine, theirs in self.pairs:
            mine.copy_(theirs)
        self.graph.replay()
        return self.result


def captured(model: torch.nn.Module, given: InputSet, same: Callable[[Any, Any], bool]) -> Captured:
    """The model as it is patched now, in a graph. Raises if the graph does not compute what the
    model computes: work that was not captured would leave the results of earlier inputs."""
    made = Captured(model, given)
    other = InputSet(given.name, {})
    other.args, other.kwargs = tree_map(rolled, (given.args, given.kwargs))
    for inputs in (other, given):
        wanted = tree_map(
            lambda v: v.clone() if isinstance(v, torch.Tensor) else v, run(model, inputs)
        )
        made.pairs = made.paired(inputs)
        if not same(made(), wanted):
            raise Failed("candidate", "a part of the model's work is not in its CUDA graph")
    return made
