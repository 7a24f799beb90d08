"""Launches plans on tensors: memory, weights that were prepared, and streams."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from . import _native
from ._package import Files

# Tensors begin at multiples of this where they were judged; torch's own allocations do.
ALIGN = {"cpu": 64, "cuda": 256}
ROOM = 512
"""Workspaces begin at multiples of this, and the allocator gives no less."""


def misfit(tensor: torch.Tensor, form: dict[str, Any]) -> str | None:
    """What of a tensor is not as judged."""
    if tensor.layout != torch.strided:
        return "layout"
    if str(tensor.dtype) != f"torch.{form['dtype']}":
        return "dtype"
    shape = form["shape"]
    if tensor.dim() != len(shape):
        return "shape"
    for dim in range(len(shape)):
        if tensor.shape[dim] != shape[dim]:
            return "shape"
    strides = tensor.stride()
    for dim in range(len(shape)):
        if shape[dim] > 1 and strides[dim] != form["strides"][dim]:
            return "strides"
    return None


REASONS = ("structure", "layout", "dtype", "shape", "strides")


def nearer(one: str, other: str) -> str:
    """What does not fit the workload that fits best."""
    return max(one, other, key=REASONS.index)


class Ready:
    """Device code and memory that lasts, for one set of weights."""

    def __init__(self, plan: _native.Plan, lasting: torch.Tensor) -> None:
        self.plan = plan
        self.lasting = lasting
        # Weak, so that a model that is deleted is freed; storages that are gone keep their name.
        self.held: list[StorageWeakRef] = []
        self.versions: list[int] | None = None
        # Of weights that are not aligned. The others are used where they lie.
        self.copies: dict[int, torch.Tensor] = {}
        self.lock = threading.Lock()
        self.stream: torch.cuda.Stream | None = None
        self.captured = False

    def expired(self) -> bool:
        """Whether a weight that it was made for is gone."""
        return any(ref.expired() for ref in self.held)


class Workload:
    """A judged set of shapes."""

    def __init__(self, files: Files, task: dict[str, Any], spec: dict[str, Any]) -> None:
        self.files = files
        self.spec = spec
        self.device = task["device"]
        self.state = [task["state"][position] for position in task["weights"]]
        self.changes = bool(task["changed"])
        self.made = [form for form in spec["results"] if "slot" in form["home"]]
        self.uses = Counter(form["home"]["slot"] for form in self.made)
        self.code: _native.Code | None = None
        self.opened: dict[torch.device, _native.Plan] = {}
        self.ready: dict[Any, Ready] = {}
        # CUDA graphs replay launches of these; nothing tells when a graph is gone.
        self.kept: list[Ready] = []
        self.lock = threading.Lock()
        self.stats: Counter[str] = Counter()

    def load(self, device: torch.device) -> None:
        """Compiles and loads the launch code, and the device code for the first use."""
        if self.device == "cuda" and torch.cuda.is_current_stream_capturing():
            return
        with self.lock:
            known = [*self.opened, *(key[0] for key in self.ready)]
            if device not in known:
                self.opened[device] = self._open(device)

    def _open(self, device: torch.device) -> _native.Plan:
        if self.code is None:
            self.code = _native.Code(self.files, self.spec["folder"])
        images = [self.files.read(path) for path in self.spec["images"]]
        with self._on(device):
            if self.device == "cuda":
                # Makes the device's context the thread's.
                torch.cuda.synchronize(device)
            return self.code.open(images, as_files=self.device == "cpu")

    def _on(self, device: torch.device) -> Any:
        return torch.cuda.device(device) if self.device == "cuda" else nullcontext()

    def invalidate(self) -> None:
        """Prepares all weights again at the next call."""
        with self.lock:
            for key in list(self.ready):
                self._retire(key)

    def _retire(self, key: Any) -> None:
        """Forgets a set, unless a CUDA graph may launch it."""
        old = self.ready.pop(key)
        if old.captured:
            self.kept.append(old)
        elif self.device == "cuda":
            # Device code is unloaded, which launches may still run.
            torch.cuda.synchronize(key[0])

    def misfit(self, inputs: list[torch.Tensor], count: int) -> str | None:
        """What of the first inputs is not as judged."""
        for index in range(count):
            why = misfit(inputs[index], self.spec["inputs"][index])
            if why is not None:
                return why
        return None

    def results(self, like: torch.Tensor) -> list[torch.Tensor]:
        """Tensors with the form of the results, as a fake kernel returns them."""
        return [
            like.new_empty_strided(
                form["shape"], form["strides"], dtype=getattr(torch, form["dtype"])
            )
            for form in self.made
        ]

    def run(self, inputs: list[torch.Tensor], weights: list[torch.Tensor]) -> list[torch.Tensor]:
        """Launches the judged plan on the current stream."""
        first = inputs[0] if inputs else weights[0]
        device = first.device
        with self._on(device), torch.no_grad():
            ready = self._prepared(device, weights)
            given = [self._aligned(tensor) for tensor in inputs]
            weights = [
                ready.copies[index] if index in ready.copies else self._aligned(weight)
                for index, weight in enumerate(weights)
            ]
            direct = self._direct(device)
            memory = [
                torch.empty(slot["bytes"], dtype=torch.uint8, device=device) if at is None else at
                for at, slot in zip(direct, self.spec["slots"], strict=True)
            ]
            bytes_ = self.spec["workspace_bytes"] + self.spec["library_bytes"] + ROOM
            scratch = torch.empty(bytes_, dtype=torch.uint8, device=device)
            with ready.lock:
                self._follow(ready, device)
                call = self._call(ready, (given, weights, memory), scratch, device)
                ready.plan.run("forward", call)
            for tensor, used in zip(inputs, given, strict=True):
                # The kernel may have changed the copy.
                if used is not tensor and self.changes:
                    tensor.copy_(used)
            self.stats["kernel"] += 1
            return [self._result(form, direct, memory) for form in self.made]

    def _aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() % ALIGN[self.device] == 0:
            return tensor
        self.stats["aligned"] += 1
        shape, stride = tensor.shape, tensor.stride()
        copy = torch.empty_strided(shape, stride, dtype=tensor.dtype, device=tensor.device)
        return copy.copy_(tensor)

    def _direct(self, device: torch.device) -> list[torch.Tensor | None]:
        """Per piece of memory: the result that fills it, if there is one."""
        found: list[torch.Tensor | None] = [None] * len(self.spec["slots"])
        for form in self.made:
            slot, dtype = form["home"]["slot"], getattr(torch, form["dtype"])
            if form["offset"] == 0 and self.uses[slot] == 1:
                shape, strides = form["shape"], form["strides"]
                result = torch.empty_strided(shape, strides, dtype=dtype, device=device)
                if result.untyped_storage().nbytes() >= self.spec["slots"][slot]["bytes"]:
                    found[slot] = result
        return found

    def _result(
        self,
        form: dict[str, Any],
        direct: list[torch.Tensor | None],
        memory: list[torch.Tensor],
    ) -> torch.Tensor:
        slot = form["home"]["slot"]
        whole = direct[slot]
        if whole is not None:
            return whole
        raw, dtype = memory[slot], getattr(torch, form["dtype"])
        shape, strides = form["shape"], form["strides"]
        view = torch.empty(0, dtype=dtype, device=raw.device)
        view.set_(raw.untyped_storage(), form["offset"] // view.element_size(), shape, strides)
        if self.uses[slot] == 1:
            return view
        # Results of an operator share no memory.
        copy = torch.empty_strided(shape, strides, dtype=dtype, device=raw.device)
        return copy.copy_(view)

    def _call(
        self,
        ready: Ready,
        tensors: tuple[list[torch.Tensor], ...],
        scratch: torch.Tensor,
        device: torch.device,
    ) -> _native.Call:
        call = _native.Call()
        for name, part in zip(("inputs", "weights", "outputs"), tensors, strict=True):
            if not part:
                continue
            table = (ctypes.c_void_p * (len(part) + 1))(*[tensor.data_ptr() for tensor in part])
            setattr(call, name, ctypes.addressof(table))
            # As long as the call.
            setattr(call, f"_{name}", table)
        call.lasting = ready.lasting.data_ptr()
        call.workspace = scratch.data_ptr()
        call.library = call.workspace + -(-self.spec["workspace_bytes"] // ROOM) * ROOM
        if self.device == "cuda":
            call.stream = torch.cuda.current_stream(device).cuda_stream
        return call

    def _follow(self, ready: Ready, device: torch.device) -> None:
        """Orders calls in different streams that share what lasts."""
        if self.device != "cuda":
            return
        stream = torch.cuda.current_stream(device)
        before = ready.stream
        if before != stream and not torch.cuda.is_current_stream_capturing():
            # Its memory is not given away before this stream has used it.
            ready.lasting.record_stream(stream)
            if before is not None and self.spec["stateful"]:
                stream.wait_stream(before)
        ready.stream = stream

    def _prepared(self, device: torch.device, weights: list[torch.Tensor]) -> Ready:
        """Device code for these weights: they are prepared again when one of them changes."""
        key: Any = (device,)
        versions: list[int] | None = []
        if self.spec["prepares"]:
            key = (device, *[_place(weight) for weight in weights])
            versions = _versions(weights)
        capturing = self.device == "cuda" and torch.cuda.is_current_stream_capturing()
        with self.lock:
            found = self.ready.get(key)
            if found is not None and versions is not None and found.versions == versions:
                found.captured |= capturing
                return found
            if capturing:
                raise RuntimeError(
                    "failed to prepare the weights of an exported kernel while a CUDA graph is "
                    "captured: call the module once before the capture"
                )
            for old in [other for other, ready in self.ready.items() if ready.expired()]:
                self._retire(old)
            # Memory that lasts must not lie in the pool of a CUDA graph that is warmed up, which
            # has the allocations of a thread and of its stream.
            with ThreadPoolExecutor(1) as thread:
                made = thread.submit(self._prepare, device, weights).result()
            if key in self.ready:
                self._retire(key)
            made.versions = versions
            self.ready[key] = made
            return made

    def _prepare(self, device: torch.device, weights: list[torch.Tensor]) -> Ready:
        if self.device != "cuda":
            with torch.no_grad():
                return self._made(device, weights)
        torch.cuda.synchronize(device)
        stream = torch.cuda.Stream(device)
        with torch.no_grad(), torch.cuda.device(device), torch.cuda.stream(stream):
            made = self._made(device, weights)
            stream.synchronize()
            return made

    def _made(self, device: torch.device, weights: list[torch.Tensor]) -> Ready:
        spec = self.spec
        plan = self.opened.pop(device, None) or self._open(device)
        lasting = torch.zeros(spec["lasting_bytes"] + ROOM, dtype=torch.uint8, device=device)
        for table in spec["tables"]:
            content = torch.frombuffer(bytearray(self.files.read(table["file"])), dtype=torch.uint8)
            lasting[table["offset"] : table["offset"] + table["bytes"]].copy_(content)
        ready = Ready(plan, lasting)
        if not spec["prepares"]:
            return ready
        ready.held = [StorageWeakRef(weight.untyped_storage()) for weight in weights]
        # What is prepared may hold the addresses of the weights.
        given = [self._aligned(weight) for weight in weights]
        for index, (weight, used) in enumerate(zip(weights, given, strict=True)):
            if used is not weight:
                ready.copies[index] = used
        before = [weight.clone() for weight in given]
        scratch = torch.empty(spec["library_bytes"] + 2 * ROOM, dtype=torch.uint8, device=device)
        call = self._call(ready, ([], given, []), scratch, device)
        plan.run("prepare", call)
        for weight, copy in zip(given, before, strict=True):
            if not torch.equal(_bytes(weight), _bytes(copy)):
                weight.copy_(copy)
                raise RuntimeError(
                    "failed to prepare the weights of an exported kernel: prepare() changes them "
                    "in place, which a package cannot do"
                )
        self.stats["prepared"] += 1
        return ready


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _place(weight: torch.Tensor) -> tuple[int, ...]:
    """Changes when the weight's memory does."""
    storage = weight.untyped_storage()
    return (storage._cdata, weight.storage_offset(), weight.data_ptr())


def _versions(weights: list[torch.Tensor]) -> list[int] | None:
    """Change when the content does, as far as torch counts; none where it does not."""
    if any(weight.is_inference() for weight in weights):
        return None
    return [weight._version for weight in weights]
