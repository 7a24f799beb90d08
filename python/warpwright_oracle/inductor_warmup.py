"""Does Inductor's once-per-process work in the fork server: imports, patterns, the hash of torch.
It is two thirds of the compilation time of a small graph.

It compiles a small model up to the point of writing kernels. It executes nothing, writes to no
shared cache, and keeps nothing of the model.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import torch


class _EnoughError(Exception):
    """Raised where Inductor would write kernels."""


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.nn.functional.gelu(self.linear(x)), -1) + x.mean(0)


def warm_up() -> None:
    """Compiles for the host. Not for GPU processes: Inductor would keep the host's patterns in
    addition to the GPU's, unlike in a user's process. Leaves a single thread, unless numpy starts
    others."""
    from torch._inductor.graph import GraphLowering

    lowered = GraphLowering.codegen

    def stop(*_: Any, **__: Any) -> Any:
        raise _EnoughError

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    GraphLowering.codegen = stop  # type: ignore[method-assign]
    try:
        with _cache_elsewhere(), torch.no_grad():
            torch.compile(_Model())(torch.randn(4, 8))
    except Exception as error:
        # Torch wraps the exception that stopped it. Any other failure is the compiler's own;
        # compiling a task will report it.
        if "_EnoughError" not in str(error):
            print(f"warming up Inductor failed: {error}"[:400], file=sys.stderr)
    finally:
        GraphLowering.codegen = lowered  # type: ignore[method-assign]
        torch._dynamo.reset()
        torch.set_num_threads(threads)


@contextlib.contextmanager
def _cache_elsewhere() -> Iterator[None]:
    name = "TORCHINDUCTOR_CACHE_DIR"
    kept = os.environ.get(name)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            os.environ.pop(name)
            if kept is not None:
                os.environ[name] = kept
