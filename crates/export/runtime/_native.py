"""The launch code: compiled once per content, and called with addresses."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from ._package import Files

ABI = 1
HEADERS = ("launch_common.h", "launch_cuda.h", "launch_host.h")
BUILT = "_built"
CACHE = "WARPWRIGHT_PACKAGE_CACHE"


class UnavailableError(RuntimeError):
    """This machine cannot run the kernels; the reference can."""


class Call(ctypes.Structure):
    """``WwCall`` of launch_common.h."""

    _fields_ = [
        ("inputs", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("lasting", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("library", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    ]


class Image(ctypes.Structure):
    """``WwImage`` of launch_common.h."""

    _fields_ = [
        ("bytes", ctypes.c_char_p),
        ("size", ctypes.c_uint64),
        ("path", ctypes.c_char_p),
    ]


def key(files: Files, source: str) -> str:
    """Names the launch code by its content."""
    digest = hashlib.sha256(f"{ABI} {platform.machine()}".encode())
    for path in (source, *HEADERS):
        digest.update(files.read(path))
    return digest.hexdigest()[:32]


def compiler() -> list[str] | None:
    """The C++ compiler of this machine."""
    chosen = shlex.split(os.environ.get("CXX", ""))
    for name in [*chosen[:1], "c++", "g++", "clang++"]:
        if shutil.which(name):
            return [name, *(chosen[1:] if chosen[:1] == [name] else [])]
    return None


def built(folder: Path, name: str) -> Path | None:
    """The launch code of this name. The SHA-256 in its file's name is compared."""
    for path in sorted(folder.glob(f"{name}-*.so")):
        if path.name == f"{name}-{hashlib.sha256(path.read_bytes()).hexdigest()}.so":
            return path
    return None


def compile_to(folder: Path, source: Path, target: Path, name: str) -> Path:
    """Compiles launch code of this name into ``target``. It appears whole or not at all."""
    command = compiler()
    if command is None:
        raise UnavailableError("there is no C++ compiler: install g++, or set CXX")
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=target) as scratch:
        made = Path(scratch) / "launch.so"
        flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility-inlines-hidden"]
        command += [*flags, "-I", str(folder), str(source), "-o", str(made), "-ldl"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise UnavailableError(f"failed to compile {source}: {ran.stderr.strip()[-500:]}")
        digest = hashlib.sha256(made.read_bytes()).hexdigest()
        return made.replace(target / f"{name}-{digest}.so")


def must_be_own(folder: Path) -> None:
    """Refuses a folder in which others can put code."""
    found = folder.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise UnavailableError(
            f"others can write to {folder}, from which launch code is loaded: run `chmod go-w` on "
            f"it if it is yours, or name another folder in {CACHE}"
        )


def cache() -> Path:
    """Where launch code is kept that was compiled at first use."""
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "warpwright" / "packages"


class Code:
    """The launch code of a workload, loaded."""

    def __init__(self, files: Files, folder: str) -> None:
        source = f"{folder}/launch.cpp"
        name = key(files, source)
        try:
            path = built(files.folder / BUILT, name) or self._cached(files, source, name)
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise UnavailableError(
                f"failed to load the launch code: {error}; name a folder in {CACHE} that can be "
                "written and whose libraries can be loaded"
            ) from error
        if library.ww_abi() != ABI:
            raise UnavailableError(f"{path} is launch code of another version")
        library.ww_error.restype = ctypes.c_char_p
        pointer = ctypes.POINTER
        library.ww_open.argtypes = [pointer(Image), pointer(ctypes.c_void_p)]
        for name in ("ww_prepare", "ww_forward"):
            getattr(library, name).argtypes = [ctypes.c_void_p, pointer(Call)]
        library.ww_close.argtypes = [ctypes.c_void_p]
        library.ww_close.restype = None
        self.library = library

    @staticmethod
    def _cached(files: Files, source: str, name: str) -> Path:
        folder = cache()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        must_be_own(folder)
        found = built(folder, name)
        return found or compile_to(files.folder, files.folder / source, folder, name)

    def open(self, images: list[bytes], as_files: bool) -> Plan:
        """Loads device code. Libraries of the host are loaded from anonymous files, so that what
        is loaded is what was compared, and every plan has variables of its own."""
        table = (Image * (len(images) + 1))()
        state = ctypes.c_void_p()
        try:
            code = self._open(images, as_files, table, state)
        except OSError as error:
            raise UnavailableError(f"failed to load the kernels: {error}") from error
        if code:
            raise UnavailableError(self.error())
        return Plan(self, state)

    def _open(
        self,
        images: list[bytes],
        as_files: bool,
        table: ctypes.Array[Image],
        state: ctypes.c_void_p,
    ) -> int:
        # The loader takes files of one name for one library, and numbers of files come again.
        with tempfile.TemporaryDirectory() as names, contextlib.ExitStack() as opened:
            for index, content in enumerate(images):
                table[index].bytes = content
                table[index].size = len(content)
                if as_files:
                    descriptor = os.memfd_create(f"kernels{index}")
                    opened.callback(os.close, descriptor)
                    _write(descriptor, content)
                    name = Path(names) / str(index)
                    name.symlink_to(f"/proc/{os.getpid()}/fd/{descriptor}")
                    table[index].path = str(name).encode()
            return self.library.ww_open(table, ctypes.byref(state))

    def error(self) -> str:
        """What failed last in this thread."""
        return (self.library.ww_error() or b"").decode(errors="replace")


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


class Plan:
    """Loaded device code, which can be launched."""

    def __init__(self, code: Code, state: ctypes.c_void_p) -> None:
        self.code = code
        self.state = state

    def run(self, phase: str, call: Call) -> None:
        """Launches ``prepare`` or ``forward``."""
        run = self.code.library.ww_forward if phase == "forward" else self.code.library.ww_prepare
        if run(self.state, ctypes.byref(call)):
            raise RuntimeError(f"failed to run an exported kernel: {self.code.error()}")

    def __del__(self) -> None:
        if self.state:
            self.code.library.ww_close(self.state)
            self.state = None
