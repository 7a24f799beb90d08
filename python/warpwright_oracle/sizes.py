"""Sizes of a reference's inputs, outputs and memory, by running it or from shapes alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from .arguments import invoke
from .dispatch import OperatorMode
from .reference import Reference, seed_everything
from .tensors import flatten, place, unflatten

SMALL_BYTES = 64 << 20
"""Total size of inputs and weights below which nothing is predicted: such a task seldom needs
much."""
LARGE_BYTES = 1 << 30
"""Tensors from this size on are not copied where nothing needs a copy."""
MOST_OPERATORS = 4000
"""Operators of a forward after which prediction stops: each takes up to a millisecond."""


class Allocated(OperatorMode):
    """Counts the bytes of results in new memory. ``bytes`` is their total, which a forward would
    allocate without reuse; candidates of several kernels get about as much for their intermediates.
    ``peak`` is the largest amount alive after an operator. Raises RuntimeError after ``most``
    operators."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.bytes = 0
        self.peak = 0
        self.operators = 0
        self.most = most
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators += 1
        if self.most is not None and self.operators > self.most:
            raise RuntimeError(f"more than {self.most} operators")
        results = func(*args, **(kwargs or {}))
        given = {
            leaf.untyped_storage()._cdata
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor)
        }
        for leaf in tree_leaves(results):
            if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
                storage = leaf.untyped_storage()
                if storage._cdata not in given:
                    self.bytes += storage.nbytes()
                    self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.alive = {at: held for at, held in self.alive.items() if not held[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return results


UNDECIDED = {"scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu"}


class Undecided(TorchFunctionMode):
    """Raises RuntimeError where the device selects the kernel, and thereby the memory use. One
    attention kernel allocates all scores, another next to nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in UNDECIDED:
            raise RuntimeError(f"the memory of {func.__name__} depends on the device")
        return func(*args, **(kwargs or {}))


def forward(
    model: torch.nn.Module, inputs: Any, seed: int, *, copy: bool = True
) -> tuple[Any, list[torch.Tensor], list[torch.Tensor]]:
    """Calls the model on copies of the inputs and restores its buffers. Returns the outputs, the
    inputs' tensors, and the copies after the call. Without ``copy`` the model gets the inputs
    themselves; raises RuntimeError if it changes them."""
    mine: list[torch.Tensor] = []
    tree = flatten(inputs, mine)
    copies = [t.clone() for t in mine] if copy else mine
    versions = [] if copy else [t._version for t in mine]
    buffers = {k: v.clone() for k, v in model.named_buffers()} if model.training else {}
    seed_everything(seed)
    with torch.no_grad():
        outputs = invoke(model, unflatten(tree, copies))
        for name, value in buffers.items():
            model.get_buffer(name).copy_(value)
    if not copy and versions != [t._version for t in mine]:
        raise RuntimeError("the reference changes large inputs, but not in every call")
    return outputs, mine, copies


def foresee(source: str, mode: str, seed: int) -> dict[str, Any] | None:
    """Predicts a call's inputs, outputs and memory from shapes alone: initialises no weight,
    computes nothing, uses no memory. None if the memory is small or cannot be predicted.

    The module is executed once more, so that it keeps no reference to meta tensors.
    """
    try:
        with torch.device("meta"):
            reference = Reference(source, "meta", mode, "foreseen")
            model = reference.move(reference.make(seed))
            inputs = reference.inputs(seed)
            init, init_tree = _places(reference.init)
            taken, input_tree = _places(inputs)
            state = [place(t, None) for t in model.state_dict().values()]
            if sum(at["bytes"] for at in (*taken, *state)) < SMALL_BYTES:
                return None
            with Undecided(), Allocated(MOST_OPERATORS) as allocated:
                outputs, _, _ = forward(model, inputs, 1)
            given, output_tree = _places(outputs)
    except Exception:  # a run of the reference reports its errors
        return None
    return {
        "init": {"tree": init_tree, "tensors": init},
        "inputs": {"tree": input_tree, "tensors": taken},
        "outputs": {"tree": output_tree, "tensors": given},
        "state": state,
        "peak_bytes": allocated.peak,
    }


def _places(value: Any) -> tuple[list[dict[str, Any]], Any]:
    tensors: list[torch.Tensor] = []
    tree = flatten(value, tensors)
    return [place(t, None) for t in tensors], tree
