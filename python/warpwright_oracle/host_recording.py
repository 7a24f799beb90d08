"""Recording on the cpu device: torch's tensors of the host are those of the device.

The library (``native/host_recorder.cpp``) stands behind torch's allocator, and hears what the
runtime in a candidate's libraries would launch. Once memory is closed nobody can read a tensor.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .shadow import MEMORY, DeviceMode, _is_view
from .stub_runtime import StubRuntime

LIBRARIES = ("libkernels.so", "cuda_extension.so", "inline/*.so")
"""The libraries of an artifact."""


class HostRuntime(StubRuntime):
    """The library's functions, for the one recording of this process."""

    def __init__(self, library: str) -> None:
        self.library = ctypes.CDLL(library)
        self._declare("recorder_begin", "int text")
        self._declare("recorder_map", "int u64 u64 u64", ctypes.c_uint64)
        self._declare("recorder_install", "")
        self._declare("recorder_for_host", "int")
        self._declare("recorder_watch", "text text", ctypes.c_int)
        self._declare("recorder_phase", "int")
        self._declare("recorder_note", "text")
        self._declare("recorder_refuse", "text")
        self._declare("recorder_open", "", ctypes.c_int)
        self._declare("recorder_fill", "u64 u32 u32 u64 pointer")
        self._declare("recorder_copy", "u64 u64 u64")
        self._declare("recorder_written", "", ctypes.c_char_p)

    def install_allocator(self) -> None:
        """Makes torch allocate through the library."""
        self.library.recorder_install()

    def watch(self, artifact: Path) -> None:
        """Loads the libraries of an artifact, and hears what they launch."""
        for path in sorted(path for form in LIBRARIES for path in artifact.glob(form)):
            name = f"alone/{path.relative_to(artifact)}"
            if self.library.recorder_watch(str(path).encode(), name.encode()):
                raise OSError(f"failed to load {path.name}")

    def capturing(self) -> bool:
        """Graphs are not captured on the cpu device."""
        return False

    def fill(self, tensor: torch.Tensor, value: int, element: int) -> None:
        """As ``StubRuntime.fill``."""
        count = tensor.numel() * tensor.element_size() // element
        self.library.recorder_fill(tensor.data_ptr(), value, element, count, None)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """As ``StubRuntime.copy``."""
        size = target.numel() * target.element_size()
        self.library.recorder_copy(target.data_ptr(), source.data_ptr(), size)

    @contextlib.contextmanager
    def host_memory(self) -> Iterator[None]:
        """As ``StubRuntime.host_memory``."""
        self.library.recorder_for_host(1)
        try:
            yield
        finally:
            self.library.recorder_for_host(0)


class HostMode(DeviceMode):
    """Handles every operator."""

    device = "cpu"

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Runs one operator."""
        kwargs = kwargs or {}
        if func.namespace != "aten":  # the candidate's own, or one that the library refuses
            return func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        self.runtime.note(f"in torch operator {name}")
        try:
            if self.runtime.memory_open() or name in MEMORY or _is_view(func):
                return func(*args, **kwargs)
            if torch.Tag.inplace_view in func.tags:
                return func(*args, **kwargs)
            return self.recorded(name, func, args, kwargs)
        finally:
            self.runtime.note("outside of torch's operators")

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies on the device."""
        return tensor.device.type == "cpu"
