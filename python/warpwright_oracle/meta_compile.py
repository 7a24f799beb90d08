"""Compiles a reference without device memory, before the device is free. Compilers read metadata of
tensors (shape, stride, dtype, device), never their data.

Hollow tensors replace weights and inputs: they have the same metadata and no memory of their own,
so nothing may read or write them. ``error_on_graph_break`` makes torch compile a whole graph or
nothing, so it runs nothing in between; the compiled code is stopped before it computes.
``fullgraph`` would capture more than a user's ``torch.compile`` does, and so give another baseline.
Torch reuses the compiled code when it is later called with real tensors of the same metadata.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch

from .arguments import invoke
from .reference import Reference
from .steps import compiled
from .tensors import flatten, unflatten

SHARE = 0.01
"""Share of a GPU's memory that compiling may use for operands of its own, to time variants of
matrix products."""


class _Compiled(Exception):
    """Raised where the compiled code would start to compute."""


class Hollow:
    """Makes hollow tensors on a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.block = torch.empty(512, dtype=torch.uint8, device=device)
        """Lends its address to all hollow tensors; the address has the alignment of any CUDA
        tensor."""

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """A hollow tensor with the same metadata, on the device."""
        make = torch._C._construct_storage_from_data_pointer
        storage = make(self.block.data_ptr(), self.device, tensor.untyped_storage().nbytes())
        hollow = torch.empty(0, dtype=tensor.dtype, device=self.device)
        return hollow.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())

    @contextlib.contextmanager
    def weights(self, model: torch.nn.Module) -> Iterator[None]:
        """Replaces the model's weights and buffers by hollow tensors, and restores them."""
        held = [(t, t.data) for t in chain(model.parameters(), model.buffers())]
        try:
            for tensor, data in held:
                tensor.data = self.like(data)
            yield
        finally:
            for tensor, data in held:
                tensor.data = data


def inputs(source: str, mode: str, seed: int) -> list[torch.Tensor]:
    """Inputs from ``get_inputs()`` on the meta device. Raises whatever the task raises there.

    The module is executed once more, so that its globals never refer to meta tensors.
    """
    with torch.device("meta"):
        return Reference(source, "meta", mode, "meta_compile").inputs(seed)


def compile_on_meta(
    model: torch.nn.Module, given: Any, device: torch.device, modes: list[dict[str, Any]]
) -> str:
    """Compiles ``model`` in each of the modes for inputs with the metadata of ``given``. Returns
    the reason if that fails, else an empty text. After a failure torch forgets all compiled
    code."""
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
                    invoke(compiled(model, settings), arguments)
                    raise RuntimeError("there is nothing that Inductor would compute")
    except Exception as error:  # the first run compiles it
        torch._dynamo.reset()
        return f"{type(error).__name__}: {error}"[:400]
    finally:
        CompiledFxGraph.__call__ = computes  # type: ignore[method-assign]
    return ""
