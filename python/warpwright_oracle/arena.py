"""Memory that the judge created, mapped into a torch process.

The judge hands over a descriptor: a memory file on the cpu device, exported device memory on a GPU.
A small native library maps it. For runners, and for baselines on the cpu device, it also becomes
the memory of torch's allocator.
"""

from __future__ import annotations

import ctypes

import torch

from .tensors import DTYPES, Place, place

ALIGN = 512


def initialise() -> None:
    """Initialises the CUDA driver, without creating a context."""
    if code := ctypes.CDLL("libcuda.so.1").cuInit(0):
        raise OSError(code, f"failed to initialise the CUDA driver (code {code})")


class Memory:
    """Memory of the judge that this process has mapped."""

    def __init__(self, device: torch.device, base: int, size: int) -> None:
        self.device = device
        self.base = base
        self.size = size
        self.whole: dict[str, torch.Tensor] = {}

    def flat(self, at: Place) -> torch.Tensor:
        """The dense elements at ``at`` as a 1-D tensor. Cheaper than ``view`` when called for many
        tensors."""
        whole = self.whole.get(at["dtype"])
        dtype = DTYPES[at["dtype"]]
        if whole is None:
            count = self.size // dtype.itemsize
            whole = self._typed(dtype, 0, count * dtype.itemsize, [count], [1])
            self.whole[at["dtype"]] = whole
        first = at["offset"] // dtype.itemsize
        return whole[first : first + at["bytes"] // dtype.itemsize]

    def view(self, at: Place) -> torch.Tensor:
        """The tensor lying at ``at``, without a copy."""
        dtype = DTYPES[at["dtype"]]
        if at["bytes"] < dtype.itemsize:
            return torch.empty(at["shape"], dtype=dtype, device=self.device)
        return self._typed(dtype, at["offset"], at["bytes"], at["shape"], at["strides"])

    def _typed(
        self, dtype: torch.dtype, offset: int, size: int, shape: list[int], strides: list[int]
    ) -> torch.Tensor:
        storage = torch._C._construct_storage_from_data_pointer(
            self.base + offset, self.device, size
        )
        empty = torch.empty(0, dtype=dtype, device=self.device)
        return empty.set_(storage, 0, shape, strides)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's data begins in this memory."""
        offset = tensor.data_ptr() - self.base
        return tensor.device.type == self.device.type and 0 <= offset < self.size

    def place(self, tensor: torch.Tensor) -> Place:
        """A tensor's place in this memory. The judge checks it."""
        return place(tensor, tensor.data_ptr() - self.base if self.holds(tensor) else None)

    def store(self, tensors: list[torch.Tensor], offset: int) -> tuple[list[Place], int]:
        """Copies tensors into this memory from ``offset`` on; returns their places and the next
        offset."""
        places = []
        for tensor in tensors:
            tensor = tensor.detach()
            at = place(tensor, offset)
            size = at["bytes"]
            if offset + size > self.size:
                raise MemoryError(f"the arena of {self.size} bytes is too small for a value")
            if size:
                count = [size // tensor.element_size()]
                source = tensor.as_strided(count, [1])
                self._typed(tensor.dtype, offset, size, count, [1]).copy_(source)
            places.append(at)
            offset += -(-size // ALIGN) * ALIGN
        return places, offset


class Arena(Memory):
    """The arena of this process, once ``reach`` has mapped it."""

    def __init__(self, device: str, library: str) -> None:
        super().__init__(torch.device(device), 0, 0)
        self.cuda = device.startswith("cuda")
        self.path = library
        if self.cuda:  # the library resolves the driver's functions in this process
            self.driver = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        self.native = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        self.native.arena_import.argtypes = [
            ctypes.c_int,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_size_t,
        ]
        self.native.arena_base.restype = ctypes.c_uint64
        self.native.arena_zone.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        self.ordinal = (self.device.index or 0) if self.cuda else 0
        self.others: list[Memory] = []

    def reach(self, descriptor: int, size: int, *, populate: bool, room: int = 0) -> Arena:
        """Maps the judge's memory at the start of ``room`` bytes of address space. On a GPU this
        creates the context. On the cpu device, ``populate`` allocates the pages at once."""
        code = self.native.arena_import(descriptor, size, self.ordinal, int(populate), room)
        if code:
            raise OSError(code, f"failed to map the arena of {size} bytes (code {code})")
        self.base, self.size = self.native.arena_base(), size
        return self

    def install(self, *, spill: bool = False) -> None:
        """Makes torch allocate from this arena only. On a GPU, call it before the first allocation.
        With ``spill`` (baselines on the cpu device), the system serves allocations that do not
        fit."""
        if self.cuda:
            memory = torch.cuda.memory
            allocator = memory.CUDAPluggableAllocator(self.path, "arena_alloc", "arena_free")
            memory.change_current_allocator(allocator)
        else:
            self.native.arena_install(int(spill))

    def reserve(self, size: int) -> None:
        """Reserves address space for GPU memory that ``open_apart`` maps later. Needs no arena."""
        if code := self.native.arena_reserve(ctypes.c_size_t(size)):
            raise OSError(code, f"failed to reserve {size} bytes of addresses (code {code})")

    def open_apart(self, descriptor: int, at: int, size: int) -> None:
        """Maps GPU memory at ``at`` bytes from the arena's start, until ``close_apart``."""
        if code := self.native.arena_open_apart(
            descriptor, ctypes.c_size_t(at), ctypes.c_size_t(size), self.ordinal
        ):
            raise OSError(code, f"failed to map {size} bytes of inputs (code {code})")

    def close_apart(self) -> None:
        """Unmaps the memory that ``open_apart`` mapped, if any."""
        self.native.arena_close_apart()

    def unmap(self, memory: Memory) -> None:
        """Unmaps memory that ``beside`` mapped. No tensor may refer to it any more."""
        self.others.remove(memory)
        memory.whole.clear()
        self.native.arena_unmap(ctypes.c_uint64(memory.base), ctypes.c_size_t(memory.size))

    def beside(self, descriptor: int, size: int) -> Memory:
        """Maps other memory of the same device, until ``close``."""
        at = ctypes.c_uint64()
        self.native.arena_map.argtypes = [
            ctypes.c_int,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.POINTER(ctypes.c_uint64),
        ]
        if code := self.native.arena_map(descriptor, size, self.ordinal, ctypes.byref(at)):
            raise OSError(code, f"failed to map {size} additional bytes (code {code})")
        self.others.append(Memory(self.device, at.value, size))
        return self.others[-1]

    def close(self) -> None:
        """Unmaps this memory and all memory mapped with ``beside``. No tensor may refer to it any
        more. Not for an arena that torch allocates from."""
        self.whole.clear()
        for other in self.others:
            other.whole.clear()
            self.native.arena_unmap(ctypes.c_uint64(other.base), ctypes.c_size_t(other.size))
        self.others.clear()
        self.native.arena_release()

    def check(self) -> None:
        """Raises OSError if the GPU, or this process's context on it, is lost."""
        if self.cuda and (code := self.driver.cuCtxSynchronize()):
            raise OSError(code, f"the context on the GPU is lost (CUDA error {code})")

    def zone(self, offset: int, size: int) -> None:
        """Makes subsequent allocations come from this part of the arena."""
        self.native.arena_zone(offset, size)
