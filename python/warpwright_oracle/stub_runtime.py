"""The recorder's stub CUDA runtime (``native/recorder_*.cpp``), preloaded into this process.

With it torch believes in a device, whose memory nobody can read. Each operation on the device is
recorded.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from typing import Any, NoReturn

import torch

PHASES = {"idle": 0, "init": 1, "prepare": 2, "inputs": 3, "first": 4, "second": 5}
"""As ``recorder::Phase``."""
ANSWER_BYTES = 255
"""Largest end of an answer that the library keeps."""

_NUMBERS = {"u64": ctypes.c_uint64, "u32": ctypes.c_uint32, "int": ctypes.c_int}


class StubRuntime:
    """The library's functions, for the one recording of this process."""

    def __init__(self, library: str) -> None:
        self.library = ctypes.CDLL(library)
        self._declare("recorder_begin", "int text")
        self._declare("recorder_map", "int u64 u64 u64", ctypes.c_uint64)
        self._declare("recorder_device", "text u64 int int")
        self._declare("recorder_attribute", "int int")
        self._declare("recorder_artifact", "text")
        self._declare("recorder_kernel", "text u64 text pointer int int int int int")
        self._declare("recorder_phase", "int")
        self._declare("recorder_note", "text")
        self._declare("recorder_refuse", "text")
        self._declare("recorder_open", "", ctypes.c_int)
        self._declare("recorder_capturing", "u64", ctypes.c_int)
        self._declare("recorder_fill", "u64 u32 u32 u64 u64")
        self._declare("recorder_written", "", ctypes.c_char_p)
        preloaded = ctypes.CDLL(None)
        if _address(preloaded.cudaLaunchKernel) != _address(self.library.cudaLaunchKernel):
            raise OSError("the recorder's library is not preloaded")

    def _declare(self, name: str, arguments: str, result: Any = None) -> None:
        kinds = {**_NUMBERS, "text": ctypes.c_char_p, "pointer": ctypes.c_void_p}
        function = getattr(self.library, name)
        function.argtypes = [kinds[kind] for kind in arguments.split()]
        function.restype = result

    def begin(self, channel: int, end: str) -> None:
        """Sets where the answer goes if this process ends early. ``end`` completes its JSON."""
        if len(end.encode()) > ANSWER_BYTES:
            raise ValueError("the nonce of the request is too long")
        self.library.recorder_begin(channel, end.encode())

    def map_memory(self, descriptor: int, size: int, given: int, seed: int) -> int:
        """Maps the judge's memory, of which the first ``given`` bytes are in use. Returns its
        address."""
        base = self.library.recorder_map(descriptor, size, given, seed & (2**64 - 1))
        if not base:
            raise MemoryError(f"failed to map {size} bytes of the judge's memory")
        return base

    def set_device(self, device: dict[str, Any]) -> None:
        """Sets the properties that the stub reports."""
        self.library.recorder_device(
            device["name"].encode(),
            device["total_memory"],
            device["driver_version"],
            device["runtime_version"],
        )
        for number, value in device["attributes"].items():
            self.library.recorder_attribute(int(number), value)

    def set_kernels(self, artifact: str, images: list[dict[str, Any]]) -> None:
        """Sets the kernels that can be launched: what the judge read off each image."""
        self.library.recorder_artifact(artifact.rstrip("/").encode())
        for image in images:
            for name, kernel in image["kernels"].items():
                params = kernel["params"]
                self.library.recorder_kernel(
                    image["library"].encode(),
                    image["address"],
                    name.encode(),
                    (ctypes.c_uint32 * len(params))(*params),
                    len(params),
                    kernel["registers"],
                    kernel["shared"],
                    kernel["local"],
                    kernel["max_threads"] or 0,
                )

    def install_allocator(self) -> None:
        """Makes torch allocate through the library. Before torch's first allocation on a device."""
        functions = self.library.recorder_allocate, self.library.recorder_release
        allocator = torch._C._cuda_customAllocator(*map(_address, functions))
        torch._C._cuda_changeCurrentAllocator(allocator)

    def enter_phase(self, name: str) -> None:
        """Begins a phase; from ``inputs`` on the host cannot reach device memory."""
        self.library.recorder_phase(PHASES[name])

    def close_memory(self) -> None:
        """Has the rest of ``prepare()`` recorded, as after its first launch."""
        self.enter_phase("inputs")
        self.enter_phase("prepare")

    def note(self, text: str) -> None:
        """Says what runs now; completes the reason if it touches device memory."""
        self.library.recorder_note(text.encode())

    def refuse(self, reason: str) -> NoReturn:
        """Answers that the candidate cannot be recorded, and ends the process."""
        self.library.recorder_refuse(reason.encode(errors="replace"))
        raise RuntimeError(reason)  # no recording has begun

    def memory_open(self) -> bool:
        """Whether the host may still read and write device memory."""
        return bool(self.library.recorder_open())

    def capturing(self) -> bool:
        """Whether torch's current stream is being captured."""
        return bool(self.library.recorder_capturing(current_stream()))

    def fill(self, tensor: torch.Tensor, value: int, element: int) -> None:
        """Sets all elements of a dense tensor to ``value``, whose low ``element`` bytes count."""
        count = tensor.numel() * tensor.element_size() // element
        self.library.recorder_fill(tensor.data_ptr(), value, element, count, current_stream())

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copies a tensor to one of the same layout: torch itself calls ``cudaMemcpyAsync``."""
        target.copy_(source)

    def host_memory(self) -> contextlib.AbstractContextManager[None]:
        """Within it, torch may compute on the host."""
        return contextlib.nullcontext()

    def written(self) -> dict[str, Any]:
        """The recording so far."""
        return json.loads(self.library.recorder_written())


def current_stream() -> int:
    """The handle of torch's current stream."""
    return torch._C._cuda_getCurrentRawStream(0)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
