"""Compiles a reference before the device's memory is free: compilers look at what tensors are like,
never at what they hold.

In place of weights and inputs stand hollow tensors: of the right kind, and with no memory of their
own. Nothing may touch what they seem to hold. Compiling a whole graph or nothing keeps torch from
running anything in between, and the compiled code is stopped where it would compute. That is asked
for by ``error_on_graph_break``: ``fullgraph`` would capture more than a user's compile does, and so
make another baseline. Torch takes up what was compiled when it is called with such tensors later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch

from .reference import Reference
from .tensors import flatten, unflatten

SHARE = 0.01
"""Of a GPU's memory, what compiling may take: it tries variants of products on operands of its own.
"""


class _Compiled(Exception):
    """Nothing is left but to compute."""


class Hollow:
    """Makes hollow tensors on a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.block = torch.empty(512, dtype=torch.uint8, device=device)
        """Its address is aligned as that of any tensor."""

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of the same kind, on the device."""
        make = torch._C._construct_storage_from_data_pointer
        storage = make(self.block.data_ptr(), self.device, tensor.untyped_storage().nbytes())
        hollow = torch.empty(0, dtype=tensor.dtype, device=self.device)
        return hollow.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())

    @contextlib.contextmanager
    def weights(self, model: torch.nn.Module) -> Iterator[None]:
        """Empties the model's weights and buffers, and puts back what they were."""
        held = [(t, t.data) for t in chain(model.parameters(), model.buffers())]
        try:
            for tensor, data in held:
                tensor.data = self.like(data)
            yield
        finally:
            for tensor, data in held:
                tensor.data = data


def inputs(source: str, mode: str, seed: int) -> list[torch.Tensor]:
    """What ``get_inputs()`` gives, without memory. Raises whatever a task raises that cannot tell.

    The module is executed once more, so that nothing that it keeps refers to what is not there."""
    with torch.device("meta"):
        return Reference(source, "meta", mode, "ahead").inputs(seed)


def compile_ahead(
    model: torch.nn.Module, given: Any, device: torch.device, modes: list[dict[str, Any]]
) -> str:
    """Compiles ``model`` for inputs like ``given`` in each of the modes. Gives why not, if so: then
    torch forgets all of it, since it may have got anywhere."""
    from torch._inductor.output_code import CompiledFxGraph

    hollow = Hollow(device)
    tensors: list[torch.Tensor] = []
    tree = flatten(given, tensors)
    arguments = unflatten(tree, [hollow.like(t) for t in tensors])
    computes = CompiledFxGraph.__call__

    def stop(*_: Any, **__: Any) -> Any:
        raise _Compiled

    CompiledFxGraph.__call__ = stop  # type: ignore[method-assign]
    try:
        with hollow.weights(model), torch.no_grad():
            for settings in modes:
                with contextlib.suppress(_Compiled), torch._dynamo.error_on_graph_break(True):
                    torch.compile(model, **settings)(*arguments)
                    raise RuntimeError("there is nothing that Inductor would compute")
    except Exception as error:  # it will be compiled when it is run
        torch._dynamo.reset()
        return f"{type(error).__name__}: {error}"[:400]
    finally:
        CompiledFxGraph.__call__ = computes  # type: ignore[method-assign]
    return ""
