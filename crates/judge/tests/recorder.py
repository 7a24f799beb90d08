"""Candidates become recordings where there is no GPU, or are refused by name.

Raises AssertionError where the answer is wrong; the last line says how many were recorded and refused.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recorder_parts import Server, built, cuda_library

counts = {"recorded": 0, "refused": 0}


class Recorded:
    """Two recordings of a candidate, and its second call in words."""

    def __init__(self, server: Server, case: str, **given: Any) -> None:
        self.answers = [server.record(case, seed=seed, **given) for seed in (1, 2)]
        for answer in self.answers:
            assert "recording" in answer, f"{case}: {answer}"
            assert answer["nonce"] == 7 and answer["status"] == 0, answer
            assert answer["recording"]["refused"] is None, answer["recording"]["refused"]
        self.answer = self.answers[0]
        self.recording = self.answer["recording"]
        one, other = (spoken(answer["recording"]) for answer in self.answers)
        assert one == other, f"{case}: {one}\n{other}"
        check_places(*(answer["recording"]["blocks"] for answer in self.answers))
        first, second = ([line for line in one if line.startswith(p)] for p in ("first", "second"))
        self.second = [line.removeprefix("second ") for line in second]
        self.prepare = [line.removeprefix("prepare ") for line in one if line.startswith("prep")]
        assert self.second == [line.removeprefix("first ") for line in first], (first, second)
        counts["recorded"] += 1

    def contents(self, block: dict[str, Any], which: int = 0) -> bytes:
        """What the host left in a block."""
        answer = self.answers[which]
        block = answer["recording"]["blocks"][self.recording["blocks"].index(block)]
        return os.pread(answer["memory"], block["bytes"], block["address"] - answer["base"])

    def blocks(self, phase: str, *, is_open: bool) -> list[dict[str, Any]]:
        """The blocks of a phase that are alive."""
        return [
            block
            for block in self.recording["blocks"]
            if block["phase"] == phase and block["open"] == is_open and block["freed"] is None
        ]


def check_places(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Two recordings have the same blocks, elsewhere and at other distances."""
    alike = [{**block, "address": 0} for block in one] == [
        {**block, "address": 0} for block in other
    ]
    assert alike and one, (one, other)
    moved = [b["address"] - a["address"] for a, b in zip(one, other, strict=True)]
    assert 0 not in moved and len(set(moved)) > len(moved) // 2, moved


def spoken(recording: dict[str, Any]) -> list[str]:
    """The operations in words, with names for addresses."""
    names: list[tuple[int, int, str]] = []
    for kind, addresses in [
        ("weight", [w["address"] for w in recording["weights"]]),
        ("init", recording["init"]),
        ("input", recording["inputs"][0]),
        ("input", recording["inputs"][1]),
    ]:
        names += [(address, 0, f"{kind} {i}") for i, address in enumerate(addresses)]
    known = {address: name for address, _, name in names}
    made: dict[str, int] = {}
    ranges = []
    for block in recording["blocks"]:
        number = made[block["phase"]] = made.get(block["phase"], -1) + 1
        phase = "made" if block["phase"] in ("first", "second") else block["phase"]
        name = known.get(block["address"], f"{phase} {number}")
        ranges.append((block["address"], block["bytes"], name))

    def place(value: Any) -> str:
        if isinstance(value, dict) and "symbol" in value:
            return f"symbol {value['symbol']['name']}+{value['symbol']['offset']}"
        address = value["address"] if isinstance(value, dict) else value
        for start, size, name in ranges:
            if start <= address < start + size:
                return name if address == start else f"{name}+{address - start}"
        return hex(address)

    def argument(text: str) -> str:
        raw = bytes.fromhex(text)
        if len(raw) == 8:
            (word,) = struct.unpack("<Q", raw)
            return place(word) if word > 1 << 40 else str(word)
        if raw.startswith(b"WWTMAP\x01\x7f"):
            entry = recording["tensor_maps"][struct.unpack_from("<Q", raw, 8)[0]]
            return f"map {place(entry['address'])} {entry['dims']} {entry['box_dims']}"
        return text

    lines = []
    for node in recording["nodes"]:
        ((kind, op),) = node["op"].items()
        if kind == "launch":
            kernel = recording["kernels"][op["kernel"]]
            marks = [key for key in ("cooperative", "programmatic") if op[key]]
            marks += [f"cluster {op['cluster']}"] if op["cluster"] else []
            marks += [f"shared {op['shared']}"] if op["shared"] else []
            body = f"{kernel['name']} {op['grid'][0]}x{op['block'][0]}"
            body = " ".join([body, *marks, f"({', '.join(map(argument, op['args']))})"])
        elif kind == "fill":
            size = [op["width"], op["height"], op["pitch"]][: 3 if op["height"] > 1 else 1]
            body = f"fill {place(op['to'])} {op['value']:#x}:{op['element']} {size}"
        elif kind == "copy":
            size = [op[key] for key in ("width", "height", "to_pitch", "from_pitch")]
            size = size if op["height"] > 1 else size[:1]
            body = f"copy {place(op['to'])} <- {place(op['from'])} {size}"
        elif kind == "upload":
            start = bytes.fromhex(op["bytes"][:16])
            pointed = place(int.from_bytes(start, "little"))
            shown = start.hex() if pointed.startswith("0x") else pointed
            body = f"upload {place(op['to'])} {shown} {len(op['bytes']) // 2}"
        elif kind == "gemv":
            operands = ", ".join(place(address) for address in op["operands"])
            keys = ("transpose", "sizes", "leading", "steps", "strides", "batch")
            numbers = [op[key] for key in keys]
            body = f"gemv ({operands}) {numbers} {op['alpha']} {op['beta']}"
        elif kind == "matmul":
            places = ", ".join(place(matrix["at"]) for matrix in op["matrices"])
            sizes = [matrix["sizes"] for matrix in op["matrices"]]
            bias = f" + {place(op['bias'])}" if op["bias"] else ""
            numbers = [op[key] for key in ("transpose", "compute", "epilogue")]
            body = f"matmul ({places}) {sizes} {numbers}{bias}"
        elif kind == "convolution":
            body = convolution(op, place)
        else:
            operands = ", ".join(place(address) for address in op["operands"])
            numbers = [op[k] for k in ("transpose", "sizes", "leading", "types", "compute", "math")]
            arrays = " of arrays" if op["pointers"] else ""
            body = f"gemm{arrays} ({operands}) {numbers} {op['alpha']} {op['beta']}"
        stream = f" stream {node['stream']}" if node["stream"] else ""
        after = f" after {node['after']}" if node["after"] else ""
        lines.append(f"{node['phase']} {body}{stream}{after}")
    return lines


def convolution(op: dict[str, Any], place: Callable[[Any], str]) -> str:
    """A convolution in words."""
    source, result = op["source"], op["result"]
    places = ", ".join(place(each["at"]) for each in (source, op["filter"], result))
    sizes = [source["dims"], op["filter"]["dims"], result["dims"]]
    numbers = [op[key] for key in ("padding", "steps", "dilation", "groups", "math", "algorithm")]
    body = f"{'transposed ' if op['transposed'] else ''}convolution ({places}) {sizes} {numbers}"
    if op["epilogue"]:
        bias, residual = op["epilogue"]["bias"], op["epilogue"]["residual"]
        kept = f" + {place(residual)}" if residual else ""
        body += f" activation {op['epilogue']['activation']} of it + {place(bias['at'])}{kept}"
    return body


SCALE = "_Z5scalePKfPflf"


def simple_candidates_are_recorded(server: Server) -> None:
    """Kernels, scratch memory and products of cuBLAS."""
    done = Recorded(server, "Elementwise")
    assert done.second == [f"{SCALE} 1x256 (input 0, made 0, 64, 00000040)"], done.second
    (output,) = done.recording["outputs"]["tensors"]
    assert output["shape"] == [64] and output["dtype"] == "float32"
    assert done.blocks("second", is_open=False)[0]["address"] == output["address"]

    done = Recorded(server, "TwoKernels", init=(60000,), shapes=((16, 128),))
    assert done.second == [
        "fill made 1 0x0:4 [1]",
        "_Z12partial_sumsPKfPfi 16x128 shared 60000 (input 0, made 0, 80000000)",
        "_Z8last_sumPKfPfi 1x32 (made 0, made 1, 10000000)",
    ], done.second
    assert done.recording["kernels"][0]["max_dynamic_shared"] == 60000

    weights = {"weight": server.torch.randn(8, 16)}
    done = Recorded(server, "Product", init=(8, 16), weights=weights, shapes=((4, 16),))
    numbers = "[[1, 0], [8, 4, 16], [16, 16, 8], [0, 0, 0], 68, 3]"
    factors = "{'f32': 1065353216} {'f32': 0}"
    assert done.second == [f"gemm (weight 0, input 0, made 0) {numbers} {factors}"], done.second
    assert done.contents(done.blocks("init", is_open=True)[0]) == floats(weights["weight"])

    done = Recorded(server, "Products")
    place = "(input 0, input 0, made 0)"
    batched, double, half = done.second
    numbers = "[[0, 1], [2, 2, 2], [2, 2, 2], [14, 14, 0], 68, 0]"
    assert batched == f"gemm {place} {numbers} {factors}", batched
    assert double.endswith(
        "[1, 1, 1], 70, 0] {'f64': 4611686018427387904} {'f64': 4611686018427387904}"
    )
    assert half.endswith("[2, 2, 2], 64, 0] {'f16': 14336} {'f16': 14336}"), half
    gemm = next(n["op"]["gemm"] for n in done.recording["nodes"] if n["phase"] == "second")
    assert gemm["batch"] == 3 and gemm["strides"] == [4, 0, 4], gemm

    table = server.torch.arange(4.0)
    done = Recorded(server, "TensorArgument", init=(table, 1.5))
    assert done.second == [f"{SCALE} 1x256 (init 0, made 0, 4, 0000c03f)"], done.second
    assert done.contents(done.blocks("init", is_open=True)[0]) == struct.pack("4f", 0, 1, 2, 3)


def bindings_are_recorded(server: Server) -> None:
    """C++ that checks tensors and takes torch's stream and cuBLAS handle."""
    weights = {"weight": server.torch.randn(8, 8)}
    done = Recorded(server, "Binding", init=(8, 8), weights=weights, shapes=((4, 8),))
    assert done.second[0] == f"{SCALE} 1x256 (input 0, made 0, 32, 00000040)", done.second
    assert done.second[1] == "fill made 1 0x0:4 [32]", done.second
    assert done.second[2].startswith("gemm (weight 0, made 0, made 1)"), done.second
    second = done.recording["outputs"]["tensors"][1]
    assert second["address"] == done.recording["inputs"][1][0]


def operators_of_candidates_are_recorded(server: Server) -> None:
    """A launcher behind an operator of the candidate's own."""
    recording = server.record("CustomOperator")["recording"]
    assert spoken(recording)[1] == f"second {SCALE} 1x256 (input 0, made 0, 64, 00000040)"
    counts["recorded"] += 1


def prepare_computes_on_the_host(server: Server) -> None:
    """Weights are read and folded; what comes out lies in the judge's memory."""
    torch = server.torch
    weights = {
        "weight": torch.randn(4, 8),
        "norm.weight": torch.rand(4),
        "norm.bias": torch.zeros(4),
        "norm.running_mean": torch.zeros(4),
        "norm.running_var": torch.rand(4) + 1,
        "norm.num_batches_tracked": torch.tensor(0),
    }
    done = Recorded(server, "Folded", init=(4,), weights=weights)
    factor = weights["norm.weight"] / torch.sqrt(weights["norm.running_var"] + 1e-5)
    folded = (weights["weight"] * factor[:, None]).t().contiguous()
    packed, table = done.blocks("prepare", is_open=True)
    assert done.contents(packed) == floats(folded)
    assert done.contents(packed, which=1) == floats(folded)
    assert done.contents(table) == floats(torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0]))
    loaded = done.blocks("init", is_open=True)
    assert done.contents(loaded[0]) == floats(weights["weight"])
    assert not done.prepare

    Recorded(server, "Shadowed", weights={"weight": torch.randn(6, 6)})


def floats(tensor: Any) -> bytes:
    """The bytes of a float tensor."""
    flat = tensor.reshape(-1).tolist()
    return struct.pack(f"{len(flat)}f", *flat)


def prepare_launches_kernels(server: Server) -> None:
    """Torch first, then kernels; memory that nobody wrote has no contents."""
    weights = {"weight": server.torch.randn(64)}
    done = Recorded(server, "Packed", init=(64,), weights=weights)
    assert done.prepare == [f"{SCALE} 1x256 (prepare 0, prepare 1, 64, 00004040)"], done.prepare
    half, zeros = (b for b in done.recording["blocks"] if b["phase"] == "prepare" and b["open"])
    assert done.contents(half) == floats(weights["weight"] / 2)
    assert done.contents(zeros) == bytes(16)
    assert len(done.blocks("prepare", is_open=False)) == 1  # packed
    assert len(done.blocks("init", is_open=False)) == 1  # scratch
    assert done.second == [
        f"{SCALE} 1x256 (prepare 1, init 0, 64, 0000803f)",
        f"{SCALE} 1x256 (init 0, made 0, 64, 0000803f)",
    ], done.second


def first_calls_set_up_what_later_ones_use(server: Server) -> None:
    """A call on zeros is the end of ``prepare()``. Without it the calls differ."""
    weights = {"weight": server.torch.randn(64)}
    done = Recorded(server, "Lazy", weights=weights, warm_up=True)
    first = [
        f"{SCALE} 1x256 (weight 0, prepare 1, 64, 00000040)",
        f"{SCALE} 1x256 (prepare 0, prepare 2, 64, 00000040)",
        f"{SCALE} 1x256 (prepare 1, prepare 3, 64, 00000040)",
    ]
    assert done.prepare == first, done.prepare
    given = next(b for b in done.recording["blocks"] if b["phase"] == "prepare")
    assert done.recording["zeroed"] == [given["address"]] and not given["open"], given
    again = [
        f"{SCALE} 1x256 (input 0, made 0, 64, 00000040)",
        f"{SCALE} 1x256 (prepare 1, made 1, 64, 00000040)",
    ]
    assert done.second == again, done.second
    most, server.recorder.MOST_OPEN_BYTES = server.recorder.MOST_OPEN_BYTES, 0
    done = Recorded(server, "Lazy", weights=weights, warm_up=True)
    server.recorder.MOST_OPEN_BYTES = most
    assert done.prepare == ["fill prepare 0 0x0:1 [256]", *first], done.prepare
    assert done.second == again and not done.recording["zeroed"], done.second
    done = Recorded(server, "LazyTable", warm_up=True)
    (table,) = done.blocks("prepare", is_open=True)
    assert done.contents(table) == floats(server.torch.arange(64.0) + 1), table
    assert done.second == [f"{SCALE} 1x256 (prepare 2, made 0, 64, 00000040)"], done.second
    cold = spoken(server.record("Lazy", weights=weights)["recording"])
    assert [line.split()[0] for line in cold] == ["first"] * 3 + ["second"] * 2, cold


def streams_and_graphs_are_recorded(server: Server) -> None:
    """Edges of events, and graphs as the operations that they hold."""
    done = Recorded(server, "Branches")
    assert done.second == [
        f"{SCALE} 1x256 (input 0, made 0, 64, 00000040)",
        f"{SCALE} 1x256 (made 0, made 1, 64, 00004040) stream 1 after [0]",
        f"{SCALE} 1x256 (made 1, made 2, 64, 00008040) after [1]",
    ], done.second
    assert done.recording["joined"] == []
    edges = [line.partition(")")[2] for line in done.second]
    for case in ("DefaultStream", "Synchronized"):
        other = Recorded(server, case).second
        assert [line.partition(")")[2] for line in other] == edges, other
    done = Recorded(server, "TorchStreams")
    assert done.second == [f"{SCALE} 1x256 (input 0, made 0, 64, 00000040) stream 1"], done.second
    assert done.recording["joined"] == [0]
    done = Recorded(server, "Graph")
    captured = [
        "fill made 0 0x0:1 [256]",
        f"{SCALE} 1x256 (input 0, made 0, 64, 0000a040)",
        "copy made 1 <- made 0 [256]",
    ]
    assert done.second == captured * 2, done.second
    done = Recorded(server, "ForkedGraph")
    assert done.second == [
        f"{SCALE} 1x256 (input 0, made 0, 64, 00000000)",
        f"{SCALE} 1x256 (input 0, made 0, 64, 0000803f)",
        f"{SCALE} 1x256 (input 0, made 1, 64, 00000040) stream 1 after [0]",
        f"{SCALE} 1x256 (made 1, made 2, 64, 00004040) after [2]",
        f"{SCALE} 1x256 (made 2, made 0, 64, 00008040)",
    ], done.second
    done = Recorded(server, "TorchGraph")
    assert len(done.second) == 3 and SCALE in done.second[1], done.second
    assert not done.prepare


def launch_attributes_are_recorded(server: Server) -> None:
    """Clusters, cooperative launches of computed size, tensor maps."""
    done = Recorded(server, "Attributes")
    assert done.second == [
        "_Z9clusteredPf 8x32 programmatic cluster [2, 1, 1] (made 0)",
        f"_Z11cooperativePf {132 * 8}x256 cooperative (made 0)",
    ], done.second
    done = Recorded(server, "Tiled", shapes=((64, 32),))
    (line,) = done.second
    assert "(map input 0 [32, 64] [32, 8], made 0)" in line, line


def memory_operations_are_recorded(server: Server) -> None:
    """Constants, fills, copies and uploads."""
    done = Recorded(server, "Table")
    assert done.prepare == ["upload symbol table+0 0000003f0000c03f 64"], done.prepare
    assert done.second[0] == "upload symbol table+0 0000c03f00002040 64", done.second
    done = Recorded(server, "Memory")
    assert done.second == [
        "fill made 1 0x11:1 [256]",
        "fill made 1 0x22:1 [8, 3, 32]",
        "upload made 1 0000803f00000040 16",
        "copy made 0 <- made 1 [16, 4, 32, 64]",
        f"{SCALE} 1x256 (input 0, made 1, 64, 0000c040)",
    ], done.second
    freed = [b["freed"] for b in done.recording["blocks"] if b["phase"] == "second"]
    assert freed == [None, ["second", 5]], freed
    done = Recorded(server, "Fills")
    assert done.second == [
        "fill made 0 0x3:2 [8]",
        "fill made 1 0x0:4 [16]",
        "fill made 2 0x0:1 [64]",
        "fill made 3 0x3fc00000:4 [4]",
        "fill made 3+4 0xbf800000:4 [2]",
        "upload made 4 0000000001000000 16",
        "copy made 5 <- input 0 [256]",
    ], done.second
    tree = json.dumps(done.recording["outputs"]["tree"])
    assert tree.startswith('{"tuple": [{"tensor": 0}, {"dict": [["b", {"tensor": 1}]'), tree
    done = Recorded(server, "AsksTorch")
    assert done.second[-1] == "upload made 0 0000803f0000803f 16", done.second


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("Refused", {"init": (0,)}, "copies device memory to the host (cudaMemcpy)"),
    ("Refused", {"init": (1,)}, "calls cudaMallocManaged"),
    ("Refused", {"init": (2,)}, "reads or writes device memory on the host"),
    ("Refused", {"init": (3,)}, "asks for the address of a variable on the device"),
    ("Refused", {"init": (4,)}, "asks for attribute 140 of the device"),
    ("Refused", {"init": ("swallowed",)}, "torch operator add"),
    ("LazyTable", {}, "torch operator arange"),
    ("Refused", {"init": ("item",)}, "reads device memory on the host (.item())"),
    ("Refused", {"init": ("branch",)}, "torch operator gt"),
    ("Refused", {"init": ("cpu",)}, "torch operator _to_copy (which reads device memory"),
    ("Refused", {"init": ("transposed",)}, "torch operator clone (between different layouts"),
    ("Refused", {"init": ("peek",)}, "reads or writes device memory on the host"),
    ("Refused", {"init": ("unguarded",)}, "launches torch's own kernel void at::native::"),
    ("Refused", {"init": ("thread",)}, "calls the allocator from a second thread"),
    ("Refused", {"init": ("eight",)}, "torch operator full (with the 8-byte value 1.1)"),
    ("Refused", {"init": ("timed",)}, "measures time on the device (cudaEventElapsedTime)"),
    ("Refused", {"init": ("host",)}, "returns a tensor that is not a dense one on the device"),
    ("Vector", {}, "calls cublasSsymv_v2"),
    ("Unjoined", {}, "a stream is not joined before the call ends"),
    ("Polled", {}, "a stream is polled"),
    ("UnjoinedInPrepare", {}, "a stream is not joined before __init__ or prepare() ends"),
    ("PackedLate", {"init": (4,), "weights": ("weight", 4)}, "prepare() computes with torch after"),
    ("LaunchesInConstructor", {}, "launches kernels while it is constructed"),
]
RAISED: list[tuple[str, str, str]] = [
    ("Raises", "raised", "ValueError: the candidate's own words"),
    ("RaisesByLauncher", "raised", "LaunchError: launcher run_sum returned error 1"),
    ("NeedsTooMuch", "memory", "the arena has no room"),
    ("None", "raised", "TypeError"),
    ("Product", "raised", "TypeError: Product.__init__() missing"),
]


def what_cannot_be_recorded_is_named(server: Server) -> None:
    """Each candidate is refused for the stated reason; what it computes first is recorded elsewhere."""
    for case, given, reason in REFUSED:
        if isinstance(given.get("weights"), tuple):
            name, size = given["weights"]
            given = {**given, "weights": {name: server.torch.ones(size)}}
        answer = server.record(case, **given)
        said = answer.get("recording", {}).get("refused")
        assert said is not None and reason in said, f"{case} {given}: {answer}"
        assert answer["nonce"] == 7 and answer["base"], answer
        counts["refused"] += 1


def exceptions_are_the_candidates_own(server: Server) -> None:
    """Errors of candidates are answers like those of a runner."""
    for case, kind, message in RAISED:
        error = server.record(case)["error"]
        assert error["kind"] == kind and message in error["message"], error
        assert "warpwright_oracle" not in error["trace"]
    weights = {"other": server.torch.ones(4)}
    error = server.record("Elementwise", weights=weights)["error"]
    assert error["kind"] == "state_dict", error


def unknown_kernels_are_refused(server: Server) -> None:
    """A kernel that the judge has not described is not launched."""
    answer = server.record("Elementwise", kernels=[])
    said = answer["recording"]["refused"]
    assert said == "launches the kernel scale(float const*, float*, long, float), which is not in " \
        "the device code of the build", said  # fmt: skip


def nothing_of_the_real_libraries_is_called(server: Server) -> None:
    """The linker binds what torch and a candidate need of the toolkit's libraries to the stubs."""
    loads = f"import torch, ctypes; ctypes.CDLL({str(server.artifact / 'libkernels.so')!r})"
    bound = bindings(loads, server.library)
    assert len(bound) > 300 and {target for _, target in bound} == {str(server.library)}, bound
    # The control: without the stubs, the candidate's functions are the real library's.
    needed = [f"ctypes.CDLL({str(cuda_library(name))!r})" for name in ("cublas", "cudnn")]
    loads = "; ".join(["import ctypes", *needed, loads.split("; ")[1]])
    real = {name: Path(target).name for name, target in bindings(loads, None)}
    assert real["cudaMemcpyAsync"].startswith("libcudart"), real


def bindings(program: str, preloaded: Path | None) -> set[tuple[str, str]]:
    """The toolkit's functions that a program binds at once: name and library."""
    environment = {
        "LD_DEBUG": "bindings",
        "LD_BIND_NOW": "1",
        "PATH": os.environ.get("PATH", os.defpath),
    }
    environment |= {"LD_PRELOAD": str(preloaded)} if preloaded else {}
    environment["LD_LIBRARY_PATH"] = str(cuda_library("cudart").parent)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, check=True
    )
    found = re.findall(
        rb"binding file (\S+) \[0\] to (\S+) \[0\]: normal symbol `((?:__)?(?:cuda|cublas|cudnn)\w+)'",
        done.stderr,
    )
    # Libraries of the toolkit also bind functions of their own to themselves.
    return {(name.decode(), target.decode()) for by, target, name in found if by != target}


CASES: list[Callable[[Server], None]] = [
    simple_candidates_are_recorded,
    bindings_are_recorded,
    operators_of_candidates_are_recorded,
    prepare_computes_on_the_host,
    prepare_launches_kernels,
    first_calls_set_up_what_later_ones_use,
    streams_and_graphs_are_recorded,
    launch_attributes_are_recorded,
    memory_operations_are_recorded,
    what_cannot_be_recorded_is_named,
    exceptions_are_the_candidates_own,
    unknown_kernels_are_refused,
    nothing_of_the_real_libraries_is_called,
]


def run(cases: list[Callable[[Server], None]]) -> None:
    """Runs cases where the library is preloaded."""
    if "LD_PRELOAD" not in os.environ:
        library, _ = built()
        environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "RECORDER_TEST_BUILD": str(library.parent),
        }
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    server = Server(*built())
    for case in cases:
        case(server)
    print(f"recorded {counts['recorded']} refused {counts['refused']}")


if __name__ == "__main__":
    run(CASES)
