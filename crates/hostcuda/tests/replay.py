"""Records every launcher of the corpus without running it, and runs what was recorded in another copy
of the library: the results must have the bits of a direct call.

Usage: replay.py FOLDER, which holds one NAME.so per NAME.cu. Prints one line per case and exits with
1 if any differs.
"""

import ctypes
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import corpus
import torch

u32, u64, i32, i64, address = (
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_int32,
    ctypes.c_int64,
    ctypes.c_void_p,
)
Node = Callable[["Library"], int]
NOT_SUPPORTED = 801
MAGIC = int.from_bytes(b"HCENTRY1", "little")


class Geometry(ctypes.Structure):
    _fields_: ClassVar = [("grid", u32 * 3), ("block", u32 * 3), ("shared", u64)]


class Argument(ctypes.Structure):
    _fields_: ClassVar = [("at", address), ("bytes", u64)]


class LaunchCall(ctypes.Structure):
    _fields_: ClassVar = [
        ("name", ctypes.c_char_p),
        ("entry", address),
        ("geometry", Geometry),
        ("stream", address),
        ("arguments", ctypes.POINTER(Argument)),
        ("count", u64),
    ]


class FillCall(ctypes.Structure):
    _fields_: ClassVar = [
        ("to", u64),
        ("pitch", u64),
        ("width", u64),
        ("height", u64),
        ("value", u32),
        ("element", u32),
        ("stream", address),
    ]


class CopyCall(ctypes.Structure):
    _fields_: ClassVar = [
        ("to", u64),
        ("source", u64),
        ("to_pitch", u64),
        ("from_pitch", u64),
        ("width", u64),
        ("height", u64),
        ("kind", i32),
        ("reserved", i32),
        ("stream", address),
    ]


class GemmCall(ctypes.Structure):
    _fields_: ClassVar = [
        ("transpose", i32 * 2),
        ("sizes", i64 * 3),
        ("operands", u64 * 3),
        ("types", u32 * 3),
        ("scalar", u32),
        ("leading", i64 * 3),
        ("strides", i64 * 3),
        ("alpha", ctypes.POINTER(ctypes.c_float)),
        ("beta", ctypes.POINTER(ctypes.c_float)),
        ("batch", u32),
        ("compute", u32),
        ("math", u32),
        ("algorithm", i32),
        ("stream", address),
    ]


class Recorder(ctypes.Structure):
    """``hostcuda::Recorder``: a callback per kind of call, with the structure that it gets."""

    KINDS: ClassVar = {
        "launch": ctypes.CFUNCTYPE(i32, address, ctypes.POINTER(LaunchCall)),
        "fill": ctypes.CFUNCTYPE(i32, address, ctypes.POINTER(FillCall)),
        "copy": ctypes.CFUNCTYPE(i32, address, ctypes.POINTER(CopyCall)),
        "gemm": ctypes.CFUNCTYPE(i32, address, ctypes.POINTER(GemmCall)),
        "allocate": ctypes.CFUNCTYPE(i32, address, ctypes.POINTER(address), u64),
        "release": ctypes.CFUNCTYPE(i32, address, address),
        "refuse": ctypes.CFUNCTYPE(i32, address, ctypes.c_char_p),
    }
    _fields_: ClassVar = [("version", u32), ("bytes", u32), ("context", address), *KINDS.items()]


class Library:
    """A loaded library: the place of its image, and its entries."""

    def __init__(self, path: Path) -> None:
        self.handle = ctypes.CDLL(str(path))
        # The first field of glibc's link_map.
        self.base = u64.from_address(self.handle._handle).value
        lines = Path("/proc/self/maps").read_text().splitlines()
        shown = f" {path.resolve()}"
        mine = [line for line in lines if line.endswith(shown)]
        # What a library has not initialised follows without a name.
        self.end = int(mine[-1].split("-")[1].split()[0], 16)
        after = next((n for n in lines if n.startswith(f"{self.end:x}-")), "")
        if len(after.split()) == 5:
            self.end = int(after.split("-")[1].split()[0], 16)

    def offset(self, at: int) -> int | None:
        return at - self.base if self.base <= at < self.end else None

    def run(self, offset: int, geometry: Geometry, arguments: list[bytes]) -> int:
        magic, run, count = (u64.from_address(self.base + offset + 8 * i).value for i in range(3))
        assert magic == MAGIC and count == len(arguments)
        sizes = (u32 * count).from_address(self.base + offset + 24)
        assert list(sizes) == [len(a) for a in arguments]
        held = [ctypes.create_string_buffer(a, len(a)) for a in arguments]
        pointers = (address * (count + 1))(*[ctypes.addressof(h) for h in held])
        kernel = ctypes.CFUNCTYPE(i32, ctypes.POINTER(Geometry), ctypes.POINTER(address))(run)
        return int(kernel(ctypes.byref(geometry), pointers))


class Recording:
    """What a launcher asks of the device, to be run later in another library."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.nodes: list[Node] = []
        self.refused: list[str] = []
        self.blocks: list[ctypes.Array[ctypes.c_char]] = []
        self.calls = {k: t(getattr(self, k)) for k, t in Recorder.KINDS.items()}
        self.recorder = Recorder(1, ctypes.sizeof(Recorder), None, **self.calls)

    def place(self, at: int) -> Callable[[Library], int]:
        """An address that may be that of a variable of the library."""
        offset = self.library.offset(at)
        return lambda other: at if offset is None else other.base + offset

    def launch(self, _: object, call: "ctypes._Pointer[LaunchCall]") -> int:
        told = call.contents
        arguments = [
            ctypes.string_at(a.at, a.bytes) for a in (told.arguments[i] for i in range(told.count))
        ]
        geometry = Geometry.from_buffer_copy(told.geometry)
        offset = self.library.offset(told.entry)
        assert offset is not None
        self.nodes.append(lambda other: other.run(offset, geometry, arguments))
        return 0

    def fill(self, _: object, call: "ctypes._Pointer[FillCall]") -> int:
        told = FillCall.from_buffer_copy(call.contents)
        assert told.element == 1 and told.height == 1
        to = self.place(told.to)
        self.nodes.append(lambda o: bool(ctypes.memset(to(o), told.value, told.width)) and 0)
        return 0

    def copy(self, _: object, call: "ctypes._Pointer[CopyCall]") -> int:
        told = CopyCall.from_buffer_copy(call.contents)
        to, source = self.place(told.to), self.place(told.source)

        def move(other: Library) -> int:
            for row in range(told.height):
                at, back = row * told.to_pitch, row * told.from_pitch
                ctypes.memmove(to(other) + at, source(other) + back, told.width)
            return 0

        self.nodes.append(move)
        return 0

    def gemm(self, _: object, call: "ctypes._Pointer[GemmCall]") -> int:
        g = GemmCall.from_buffer_copy(call.contents)
        alpha, beta = g.alpha[0], g.beta[0]
        numbers = [*g.transpose, *g.sizes, *g.types, *g.leading]

        def multiply(other: Library) -> int:
            return int(
                other.handle.gemm_of_any_type(
                    *map(address, g.operands),
                    *map(ctypes.c_int, numbers),
                    *map(ctypes.c_longlong, g.strides),
                    ctypes.c_int(g.batch),
                    ctypes.c_float(alpha),
                    ctypes.c_float(beta),
                    ctypes.c_int(g.compute),
                    ctypes.c_int(g.algorithm),
                    address(0),
                )
            )

        self.nodes.append(multiply)
        return 0

    def allocate(self, _: object, to: "ctypes._Pointer[ctypes.c_void_p]", size: int) -> int:
        self.blocks.append(ctypes.create_string_buffer(size + 256))
        to[0] = (ctypes.addressof(self.blocks[-1]) + 255) // 256 * 256
        return 0

    def release(self, _: object, at: int) -> int:
        return 0

    def refuse(self, _: object, what: bytes) -> int:
        self.refused.append(what.decode())
        return NOT_SUPPORTED


class Replayed(corpus.Launch):
    """A launcher of one library that records, and of its copy that runs: directly, and then what the other
    recorded. Each counts its calls for itself, if it counts them."""

    def __init__(self, library: Library, copy: Library, name: str) -> None:
        super().__init__(copy.handle, name)
        self.asking = corpus.Launch(library.handle, name)
        self.library, self.copy, self.name = library, copy, name
        self.nodes = 0
        self.refused: list[str] = []

    def __call__(self, *args: object) -> int:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        before = [t.clone() for t in tensors]
        code = super().__call__(*args)
        direct = [t.clone() for t in tensors]
        for tensor, old in zip(tensors, before, strict=True):
            tensor.copy_(old)

        recording = Recording(self.library)
        install = self.library.handle.hostcuda_set_recorder
        assert install(ctypes.byref(recording.recorder)) == 0
        recorded_code = self.asking(*args)
        assert install(None) == 0
        self.refused += recording.refused
        if recording.refused:
            for tensor, new in zip(tensors, direct, strict=True):
                tensor.copy_(new)
            return code
        assert recorded_code == code or self.name != "bad_launch", recorded_code
        assert all(map(same_bits, tensors, before)), "something was computed while recording"
        for node in recording.nodes:
            assert node(self.copy) == 0
        self.nodes += len(recording.nodes)
        for tensor, expected in zip(tensors, direct, strict=True):
            assert same_bits(tensor, expected), "other bits than by a direct call"
        return code


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


# Launchers whose host code reads what a kernel wrote: it cannot run before the kernels do.
READ_RESULTS = {"about_kernels"}
# Kernels by a name that a variable has too.
UNKNOWN = {"pointers": {"negate"}}


def main() -> int:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    failed = 0
    with tempfile.TemporaryDirectory() as made:
        for library, name, body in corpus.CASES:
            if name in READ_RESULTS:
                continue
            torch.manual_seed(20)
            copied = Path(made) / f"{library}.so"
            if not copied.exists():
                shutil.copy(folder / f"{library}.so", copied)
            launch = Replayed(Library(folder / f"{library}.so"), Library(copied), name)
            try:
                body(launch)
                assert set(launch.refused) == UNKNOWN.get(name, set()), launch.refused
                assert launch.nodes or name == "bad_launch", "nothing was recorded"
                print(f"ok {library}.{name}")
            except Exception as error:  # every case is tried, and each says what was wrong
                failed += 1
                print(f"FAILED {library}.{name}: {error}")
    print(f"{len(corpus.CASES)} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
