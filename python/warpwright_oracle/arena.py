"""Memory that the judge created, seen from a torch process.

The judge hands over a descriptor: a memory file on the cpu device, exported device memory on a
GPU. A small native library maps it and, for runners and for baselines on the cpu device, puts it
behind torch's allocator.
"""

from __future__ import annotations

import ctypes

import torch

from .tensors import DTYPES, Place, place, span

ALIGN = 512


class Arena:
    """The mapped arena of this process."""

    def __init__(
        self, device: str, library: str, descriptor: int, size: int, *, populate: bool
    ) -> None:
        self.cuda = device.startswith("cuda")
        self.device = torch.device(device)
        self.size = size
        self.path = library
        if self.cuda:  # the library leaves the driver's functions to be found in the process
            self.driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        self.native = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        self.native.arena_import.argtypes = [
            ctypes.c_int,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
        ]
        self.native.arena_base.restype = ctypes.c_uint64
        self.native.arena_zone.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        ordinal = (self.device.index or 0) if self.cuda else 0
        code = self.native.arena_import(descriptor, size, ordinal, int(populate))
        if code:
            raise OSError(code, f"failed to map the arena of {size} bytes (code {code})")
        self.base = self.native.arena_base()

    def install(self, *, spill: bool = False) -> None:
        """Makes torch allocate from this arena only; before the first allocation on a GPU. With
        ``spill`` (baselines on the cpu device), what does not fit comes from the system."""
        if self.cuda:
            memory = torch.cuda.memory
            allocator = memory.CUDAPluggableAllocator(self.path, "arena_alloc", "arena_free")
            memory.change_current_allocator(allocator)
        else:
            self.native.arena_install(int(spill))

    def close(self) -> None:
        """Unmaps it. Nothing may refer to what lay there; not for one that torch allocates from."""
        self.native.arena_release()

    def check(self) -> None:
        """Raises OSError when the GPU, or this process's context on it, is no more."""
        if self.cuda and (code := self.driver.cuCtxSynchronize()):
            raise OSError(code, f"the context on the GPU is lost (CUDA error {code})")

    def zone(self, offset: int, size: int) -> None:
        """From here on, allocations come from this part of the arena."""
        self.native.arena_zone(offset, size)

    def view(self, at: Place) -> torch.Tensor:
        """The tensor lying at ``at``, without a copy."""
        dtype = DTYPES[at["dtype"]]
        count = at["bytes"] // dtype.itemsize
        if count == 0:
            return torch.empty(at["shape"], dtype=dtype, device=self.device)
        flat = self._flat(at["offset"], at["bytes"]).view(dtype)
        return flat.as_strided(at["shape"], at["strides"])

    def _flat(self, offset: int, size: int) -> torch.Tensor:
        make = torch._C._construct_storage_from_data_pointer
        storage = make(self.base + offset, self.device, size)
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, 0, (size,), (1,))

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor begins in this arena."""
        offset = tensor.data_ptr() - self.base
        return tensor.device.type == self.device.type and 0 <= offset < self.size

    def place(self, tensor: torch.Tensor) -> Place:
        """Where a tensor lies in this arena, for the judge to check."""
        return place(tensor, tensor.data_ptr() - self.base if self.holds(tensor) else None)

    def store(self, tensors: list[torch.Tensor], offset: int) -> tuple[list[Place], int]:
        """Copies tensors into the arena from ``offset`` on; their places and the next offset."""
        places = []
        for tensor in tensors:
            tensor = tensor.detach()
            at = place(tensor, offset)
            if offset + at["bytes"] > self.size:
                raise MemoryError(f"the arena of {self.size} bytes is too small for a value")
            if at["bytes"]:
                count = span(tensor)
                source = tensor.as_strided((count,), (1,))
                self._flat(offset, at["bytes"]).view(tensor.dtype).copy_(source)
            places.append(at)
            offset += -(-at["bytes"] // ALIGN) * ALIGN
        return places, offset
