"""The operator graph of a reference, from shapes alone: nothing is computed."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .arguments import invoke
from .dispatch import OperatorMode
from .reference import Reference

MOST_OPERATORS = 20_000
"""Largest graph, in operators: each takes up to a millisecond."""


class Recorder(OperatorMode):
    """Records each operator that runs, and the nodes that produced its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[dict[str, Any]] = []
        self.at: dict[int, int] = {}
        self.alive: list[torch.Tensor] = []
        """Keeps all tensors alive, so that each id stays unique."""

    def leaf(self, tensor: torch.Tensor, kind: str) -> int:
        """A node that computes nothing."""
        return self._note(kind, [], [tensor])

    def of(self, tensor: torch.Tensor) -> int:
        """The node that produced a tensor; a constant if none did."""
        known = self.at.get(id(tensor))
        return self.leaf(tensor, "constant") if known is None else known

    def _note(self, name: str, inputs: list[int], results: list[torch.Tensor]) -> int:
        self.nodes.append({"op": name, "inputs": inputs})
        for tensor in results:
            self.at[id(tensor)] = len(self.nodes) - 1
            self.alive.append(tensor)
        return len(self.nodes) - 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if len(self.nodes) > MOST_OPERATORS:
            raise RuntimeError(f"more than {MOST_OPERATORS} operators")
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        inputs = [self.of(tensor) for tensor in given]
        results = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(results) if isinstance(leaf, torch.Tensor)]
        self._note(str(func), inputs, made)
        return results


def graph(source: str, mode: str, seed: int) -> dict[str, Any] | None:
    """Nodes and outputs, by index. None where shapes alone do not determine the operators. The
    module is executed once more, so that it keeps no reference to meta tensors."""
    try:
        with torch.device("meta"):
            reference = Reference(source, "meta", mode, "graphed")
            model = reference.move(reference.make(seed))
            inputs = reference.inputs(seed)
            recorder = Recorder()
            for kind, tensors in (
                ("parameter", model.parameters()),
                ("buffer", model.buffers()),
            ):
                for tensor in tensors:
                    recorder.leaf(tensor, kind)
            for leaf in tree_leaves(inputs):
                if isinstance(leaf, torch.Tensor):
                    recorder.leaf(leaf, "input")
            with torch.no_grad(), recorder:
                outputs = invoke(model, inputs)
    except Exception:  # a run of the reference reports its errors
        return None
    given = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
    return {"nodes": recorder.nodes, "outputs": [recorder.of(tensor) for tensor in given]}
