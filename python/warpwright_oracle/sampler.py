"""Samples many tensors with one launch on a GPU, by a kernel of ours (``native/sampling.cu``).

A window of short calls has gigabytes of inputs, in hundreds of tensors.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import torch

JOB = struct.Struct("<QQQII")
THREADS = 256
MOST_BLOCKS = 1024
"""Blocks per tensor."""
MOST_JOBS = 65535
"""Largest second dimension of a grid."""

ALIGNED = 16
"""Bytes: four numbers are written at once."""

Fill = tuple[int, int, int, int, bool]
"""Address (``ALIGNED``), number of elements, seed, position of the tensor in its set, and
whether the numbers are normal, or uniform in [0, 1)."""


class Sampler:
    """The kernel, loaded into the current context."""

    def __init__(self, driver: ctypes.CDLL, device: torch.device) -> None:
        self.driver = driver
        self.device = device
        text = (Path(__file__).parent / "sampling.ptx").read_bytes() + b"\0"
        module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(driver.cuModuleLoadData(ctypes.byref(module), text))
        self._check(driver.cuModuleGetFunction(ctypes.byref(self.kernel), module, b"fill"))

    def _check(self, code: int) -> None:
        if code:
            raise OSError(code, f"failed to sample inputs (CUDA error {code})")

    def fill(self, jobs: list[Fill]) -> None:
        """Fills float32 tensors, in the order of the current stream."""
        for first in range(0, len(jobs), MOST_JOBS):
            self._launch(jobs[first : first + MOST_JOBS])

    def _launch(self, jobs: list[Fill]) -> None:
        if any(at % ALIGNED for at, *_ in jobs):
            raise ValueError("a tensor is not aligned")
        packed = bytearray(b"".join(JOB.pack(*job) for job in jobs))
        table = torch.frombuffer(packed, dtype=torch.uint8).to(self.device)
        blocks = -(-max(count for _, count, *_ in jobs) // (4 * THREADS))
        at = ctypes.c_uint64(table.data_ptr())
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(at), ctypes.c_void_p))
        grid = (min(max(blocks, 1), MOST_BLOCKS), len(jobs), 1, THREADS, 1, 1, 0)
        stream = ctypes.c_void_p(torch.cuda.current_stream(self.device).cuda_stream)
        launch = self.driver.cuLaunchKernel
        self._check(launch(self.kernel, *grid, stream, arguments, None))
