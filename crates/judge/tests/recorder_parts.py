"""Parts of the recorder's tests: the stub runtime, an artifact, and a server whose forks record."""

from __future__ import annotations

import ctypes.util
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "fixtures" / "recorder"
SITE = Path(sysconfig.get_paths()["purelib"])
CUDA = Path(os.environ.get("CUDA_HOME", SITE / "nvidia" / "cu13"))
CXX = ["g++", "-std=c++17", "-fPIC", "-shared"]
STUBBED = re.compile(r"_*(cuda|cublas|cudnn)[A-Za-z0-9_]*")
MEMORY_BYTES = 256 << 20
H200 = {
    # CUdevice_attribute: value
    1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2147483647, 6: 65535, 7: 65535, 8: 49152, 9: 65536,
    10: 32, 12: 65536, 16: 132, 39: 2048, 75: 9, 76: 0, 81: 233472, 82: 65536, 95: 1, 97: 232448,
    106: 32, 111: 1024, 120: 1, 38: 52428800,
}  # fmt: skip


def run(*command: Any) -> str:
    """Runs a program; returns its output."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command[0]}: {done.stderr[-3000:]}"
    return done.stdout


def cuda_library(name: str) -> Path:
    """A library of the toolkit, e.g. ``cudart``."""
    found = [*CUDA.glob(f"lib*/lib{name}.so*"), *SITE.glob(f"nvidia/*/lib/lib{name}.so*")]
    return sorted(found)[0]


def exported(library: Path) -> list[str]:
    """The functions that a library exports, without their versions."""
    lines = (line.split() for line in run("nm", "-D", "--defined-only", library).splitlines())
    names = (line[2].split("@")[0] for line in lines if line[1] in "TW")
    return [name for name in names if STUBBED.fullmatch(name)]


def stubs() -> str:
    """A source of weak functions: each stands for a function of the libraries and refuses by name."""
    names = {
        name
        for library in ("cudart", "cublas", "cublasLt", "cudnn")
        for name in exported(cuda_library(library))
    }
    lines = ['extern "C" int recorder_unknown(const char*);']
    weak = '__attribute__((weak)) int {0}() {{ return recorder_unknown("{0}"); }}'
    lines += [f'extern "C" {weak.format(name)}' for name in sorted(names)]
    return "\n".join(lines) + "\n"


def cuda_includes() -> list[Path]:
    """Folders with the headers of the toolkit and of cuDNN."""
    folders = [CUDA / "include", *SITE.glob("nvidia/cudnn/include")]
    return [folder for folder in folders if folder.is_dir()]


def build_stub_runtime(folder: Path) -> Path:
    """The library that is preloaded; without warnings."""
    native = HERE.parent / "native"
    (folder / "recorder_stubs.cpp").write_text(stubs())
    out = folder / "recorder.so"
    options = ["-O1", "-Wall", "-Wextra", "-Werror"]
    for include in cuda_includes():
        options += ["-isystem", include]
    exports = f"-Wl,--version-script={native / 'recorder_exports.map'}"
    sources = [*sorted(native.glob("recorder_*.cpp")), folder / "recorder_stubs.cpp"]
    run(*CXX, *options, "-Wl,-soname,libcuda.so.1", exports, "-o", out, *sources)
    return out


def build_artifact(folder: Path) -> Path:
    """An artifact with launchers and a binding, as the builder makes them."""
    artifact = folder / "artifact"
    artifact.mkdir()
    source, libraries = SOURCES / "kernels.cu", SOURCES / "libraries.cpp"
    compiler = [CUDA / "bin" / "nvcc", "-O1", "-std=c++17", "-Xcompiler", "-fPIC"]
    compiler += ["-gencode=arch=compute_90a,code=sm_90a", "-cudart", "none"]
    compiler += [f"-I{folder}" for folder in cuda_includes()]
    names = ("cudart", "cublas", "cublasLt", "cudnn")
    linked = [f"-Xlinker={cuda_library(name)}" for name in names]
    kernels = artifact / "libkernels.so"
    compiler += ["-shared", "--keep", "--keep-dir", folder, "-o", kernels]
    run(*compiler, source, libraries, *linked)
    torch = SITE / "torch" / "include"
    includes = [CUDA / "include", torch, torch / "torch" / "csrc" / "api" / "include"]
    includes.append(Path(sysconfig.get_paths()["include"]))
    options = ["-O1", "-w", "-DTORCH_EXTENSION_NAME=cuda_extension"]
    options += [f"-I{path}" for path in includes]
    binding = [SOURCES / "binding.cpp", kernels, "-Wl,-rpath,$ORIGIN", cuda_library("cublas")]
    for name in ("c10", "torch_cpu", "c10_cuda", "torch_cuda", "torch_python"):
        binding.append(SITE / "torch" / "lib" / f"lib{name}.so")
    run(*CXX, *options, *binding, "-o", artifact / "cuda_extension.so")
    text = source.read_text() + libraries.read_text()
    launchers = {"library": "libkernels.so", "launchers": described(text)}
    (artifact / "launchers.json").write_text(json.dumps(launchers))
    return artifact


def described(source: str) -> list[dict[str, Any]]:
    """The launchers of a source, in the form of ``launchers.json``."""
    found = []
    for name, text in re.findall(r'extern "C" int (\w+)\(([^)]*)\)', source):
        params = []
        for each in (p.strip() for p in text.split(",")):
            kind, element = (
                "scalar",
                {"int": "int32", "long": "int64"}.get(each.split()[0], "float32"),
            )
            if "*" in each:
                kind = "pointer"
            if "Stream" not in each:
                params.append({"kind": kind, "name": each, "element": element, "lanes": 1})
        found.append({"name": name, "params": params, "has_stream": True, "returns": "int"})
    return found


def sections(data: bytes) -> list[tuple[str, tuple[int, ...]]]:
    """The sections of an ELF file: name and header."""
    start = struct.unpack_from("<Q", data, 40)[0]
    count, names = struct.unpack_from("<HH", data, 60)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * i) for i in range(count)]
    table = heads[names][4]
    return [(data[table + h[0] :].split(b"\0", 1)[0].decode(), h) for h in heads]


def kernel_table(cubin: bytes) -> dict[str, dict[str, Any]]:
    """Per kernel of a cubin what the judge tells the recorder."""
    table: dict[str, dict[str, Any]] = {}
    all_sections = sections(cubin)
    for name, head in all_sections:
        if not name.startswith(".nv.info."):
            continue
        at, end, sizes = head[4], head[4] + head[5], {}
        while at < end:
            form, kind, value = struct.unpack_from("<BBH", cubin, at)
            if form == 4 and kind == 0x17:  # EIATTR_KPARAM_INFO
                _, ordinal, _, flags = struct.unpack_from("<IHHI", cubin, at + 4)
                sizes[ordinal] = flags >> 18
            at += 4 + (value if form == 4 else 0)
        kernel = {"params": [sizes[i] for i in range(len(sizes))], "shared": 0, "local": 0}
        table[name[9:]] = {**kernel, "registers": 32, "max_threads": 0}
    return table


def images(artifact: Path) -> list[dict[str, Any]]:
    """The request's ``kernels`` for the artifact of ``build_artifact``."""
    library = (artifact / "libkernels.so").read_bytes()
    ((_, head),) = [s for s in sections(library) if s[0] == ".nv_fatbin"]
    (cubin,) = artifact.parent.glob("*.cubin")
    table = kernel_table(cubin.read_bytes())
    return [{"library": "libkernels.so", "address": head[3], "kernels": table}]


class Server:
    """Forks a process per recording, as the fork server does. Runs where the library is preloaded."""

    def __init__(self, library: Path, artifact: Path) -> None:
        import warpwright_oracle.recorder as recorder

        self.recorder, self.torch = recorder, recorder.torch
        self.library, self.artifact = library, artifact
        self.images = images(artifact)
        names = ("candidates.py", "libraries.py")
        self.source = "\n\n".join((SOURCES / name).read_text() for name in names)

    def record(
        self,
        case: str,
        *,
        seed: int = 1,
        init: tuple[Any, ...] = (),
        weights: dict[str, Any] | None = None,
        shapes: tuple[tuple[int, ...], ...] = ((64,),),
        **other: Any,
    ) -> dict[str, Any]:
        """One recording: the answer, with the contents of the memory file and the time it took."""
        memory = os.memfd_create("recorder")
        os.truncate(memory, MEMORY_BYTES)
        request = self._request(case, init, weights or {}, shapes, memory)
        request.update(seed=seed, **other)
        ours, theirs = socket.socketpair()
        started = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            ours.close()
            sys.argv = ["recorder", "--device", "cuda:0", "--channel", str(theirs.detach())]
            sys.argv += ["--library", str(self.library)]
            try:
                self.recorder.main()
            except BaseException:
                sys.excepthook(*sys.exc_info())
            os._exit(0)
        theirs.close()
        answer = converse(ours, request, memory)
        answer["seconds"] = time.perf_counter() - started
        ours.close()
        answer["status"] = os.waitpid(pid, 0)[1]
        answer["memory"] = memory
        return answer

    def _request(
        self,
        case: str,
        init: tuple[Any, ...],
        weights: dict[str, Any],
        shapes: tuple[tuple[int, ...], ...],
        memory: int,
    ) -> dict[str, Any]:
        from warpwright_oracle.tensors import flatten, place

        offset = 0

        def stored(tensor: Any) -> dict[str, Any]:
            nonlocal offset
            at = place(tensor, offset)
            raw = tensor.contiguous().reshape(-1).view(self.torch.uint8)
            os.pwrite(memory, raw_bytes(raw), offset)
            offset += -(-at["bytes"] // 512) * 512
            return at

        arguments: list[Any] = []
        tree = flatten(list(init), arguments)
        given = [self.torch.empty(shape) for shape in shapes]
        return {
            "do": "record",
            "nonce": 7,
            "source": f"{self.source}\n\nModelNew = {case}\n",
            "artifact": str(self.artifact),
            "mode": "eval",
            "profile": "strict",
            "init": {"tree": tree, "tensors": [stored(t) for t in arguments]},
            "names": list(weights),
            "tensors": [stored(t) for t in weights.values()],
            "inputs": {
                "tree": {"list": [{"tensor": i} for i in range(len(given))]},
                "tensors": [place(t, None) for t in given],
            },
            "kernels": self.images,
            "device": {
                "name": "NVIDIA H200",
                "total_memory": 140 << 30,
                "attributes": {str(k): v for k, v in H200.items()},
                "driver_version": 13000,
                "runtime_version": 13000,
            },
            "memory_bytes": MEMORY_BYTES,
            "warm_up": False,
        }


def raw_bytes(tensor: Any) -> bytes:
    """The bytes of a dense tensor on the host."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel())


def converse(ours: socket.socket, request: dict[str, Any], memory: int) -> dict[str, Any]:
    """Sends the request with the memory file; receives the answer."""
    body = json.dumps(request).encode()
    ours.sendall(struct.pack("<I", len(body)) + body)
    socket.send_fds(ours, [b"m"], [memory])
    stream = ours.makefile("rb")
    try:
        length = struct.unpack("<I", stream.read(4))[0]
    except (struct.error, ConnectionResetError):
        return {"died": True}
    return json.loads(stream.read(length))


def scratch() -> Path:
    """A folder for what is built, kept between runs if ``RECORDER_TEST_BUILD`` names one."""
    import tempfile

    named = os.environ.get("RECORDER_TEST_BUILD")
    folder = Path(named) if named else Path(tempfile.mkdtemp(prefix="recorder-test-"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def built() -> tuple[Path, Path]:
    """The library and the artifact; builds what is missing."""
    folder = scratch()
    library, artifact = folder / "recorder.so", folder / "artifact"
    if not library.exists():
        build_stub_runtime(folder)
    if not artifact.exists():
        try:
            build_artifact(folder)
        except BaseException:
            shutil.rmtree(artifact, ignore_errors=True)
            raise
    return library, artifact
