"""The baseline process: times one task's eager and compiled reference.

Trusted for values, not with the host. On the cpu device it allocates from an arena like a
candidate does, so that page faults and allocator speed cost both sides the same; on a GPU it uses
torch's caching allocator, which CUDA graphs need.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import io
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from . import extension, headers, precision
from .arena import Arena
from .channel import Channel, serve
from .player import Call, Player
from .reference import Reference, bound, seed_everything

MODES: dict[str, dict[str, Any]] = {
    "compile": {},
    "reduce_overhead": {"mode": "reduce-overhead"},
    "max_autotune": {"mode": "max-autotune"},
}


class Baseline(Player):
    """State between requests."""

    def __init__(self, device: str, library: str, channel: Channel) -> None:
        super().__init__(None, device.startswith("cuda"))
        self.device = device
        self.library = library
        self.channel = channel
        self.holding = False
        self.keep: int | None = None
        self.graphs: set[str] = set()

    def adopt(self, request: dict[str, Any]) -> dict[str, Any]:
        """Maps the memory whose descriptor comes with the request, and allocates from it from now
        on: on the cpu device, where its size is the task's."""
        descriptor = self.channel.descriptor()
        size = request["arena_bytes"]
        self.arena = Arena(self.device, self.library, descriptor, size, populate=True)
        os.close(descriptor)
        self.arena.install(spill=True)
        return {}

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Loads the reference. Asks for a GPU itself, when that is done on the host. ``artifact``:
        compiled kernels that it calls, where the judge times kernels of its own on both sides."""
        precision.apply(request["profile"])
        bound(request.get("device_bytes"))
        self.sets, self.results = [], []
        if request.get("artifact") is not None:
            extension.install(Path(request["artifact"]), self.device)
        self.reference = Reference(request["source"], self.device, request["mode"])
        model = self.reference.make(request["seed"])
        self.graphs = set()
        with self._holding("shared"):
            self.model = self.reference.move(model)
            self.calls = {"eager": self.model, "nothing": self._nothing()}
        return {"versions": precision.fingerprint()}

    def _nothing(self) -> Call:
        """What the windows are compared with. On a GPU it touches the device once."""
        if not self.cuda:
            return lambda *_: None
        scalar = torch.ones(1, device=self.device)
        return lambda *_: (scalar.add_(0), None)[1]

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compiles one baseline and runs it until it is warm. Only what computes on the device
        takes it, and then alone: compilers look for the fastest variant of a kernel by timing it,
        and what they measured beside others would make a slow baseline."""
        which = request["which"]
        started = time.perf_counter()
        noise = io.StringIO()
        with contextlib.redirect_stdout(noise), torch.no_grad():
            if which != "eager":
                self.calls[which] = torch.compile(self.model, **MODES[which])
            if which in ("reduce_overhead", "max_autotune"):
                self.graphs.add(which)
            with self._alone():
                inputs = self.reference.inputs(request["seed"])
            with self._alone() if which == "eager" else self._computing_alone():
                for _ in range(request["warm_calls"]):
                    self._begin(which)
                    self.calls[which](*inputs)
        return {"seconds": time.perf_counter() - started}

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        return self._holding("alone")

    @contextlib.contextmanager
    def _holding(self, how: str) -> Iterator[None]:
        """Holds a GPU until what was begun there is done."""
        if self.holding or not self.cuda:
            yield
            return
        self.holding = True
        try:
            with self.channel.holding(how):
                yield
                torch.cuda.synchronize()
        finally:
            self.holding = False

    @contextlib.contextmanager
    def _computing_alone(self) -> Iterator[None]:
        """Has compiled code and the timing of its variants take the device. Not for longer than
        needed: what is left in its way would be timed as well."""
        if not self.cuda:
            yield
            return
        from torch._inductor.output_code import CompiledFxGraph
        from torch._inductor.runtime.benchmarking import benchmarker

        timer = type(benchmarker)
        with self._taking(CompiledFxGraph, "__call__"), self._taking(timer, "benchmark_gpu"):
            yield

    @contextlib.contextmanager
    def _taking(self, owner: type, name: str) -> Iterator[None]:
        mine = vars(owner).get(name)
        method = getattr(owner, name)

        @functools.wraps(method)
        def alone(*args: Any, **kwargs: Any) -> Any:
            with self._alone():
                return method(*args, **kwargs)

        setattr(owner, name, alone)
        try:
            yield
        finally:
            if mine is None:
                delattr(owner, name)
            else:
                setattr(owner, name, mine)

    def give_up(self, request: dict[str, Any]) -> dict[str, Any]:
        """Forgets one baseline, which did not fit."""
        which = request["which"]
        self.calls.pop(which, None)
        self.sets, self.results = [], []
        if which in self.graphs:
            # Its graphs are what holds its buffers; others record theirs again.
            from torch._inductor.cudagraph_trees import reset_cudagraph_trees

            self.graphs.discard(which)
            torch._dynamo.reset()
            reset_cudagraph_trees()
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()
        return {}

    def _begin(self, which: str) -> None:
        if which in self.graphs:
            torch.compiler.cudagraph_mark_step_begin()

    def stage(self, request: dict[str, Any]) -> dict[str, Any]:
        """Inputs of the given seeds, as a candidate gets them. ``keep``: of how many calls the
        results stay alive, so that the next one finds its memory in no cache; None for all."""
        self.sets, self.results = [], []
        self.sets = [self.reference.inputs(seed) for seed in request["seeds"]]
        self.keep = request["keep"]
        if self.cuda:
            torch.cuda.synchronize()
        return {}

    def go(self, request: dict[str, Any]) -> dict[str, Any]:
        """As for a candidate. Graphed baselines own one set of outputs, which each call overwrites:
        marking a step is what a user of theirs has to do as well."""
        which = request["which"]
        self.results = deque(maxlen=self.keep)
        if which not in self.graphs:
            return super().go(request)
        call, sets, mark = self.calls[which], self.sets, torch.compiler.cudagraph_mark_step_begin
        with torch.no_grad():
            for index in request["order"]:
                mark()
                call(*sets[index])
        torch.cuda.synchronize()
        return {}

    def bandwidth(self, request: dict[str, Any]) -> dict[str, Any]:
        """Stages a copy of ``bytes`` and an empty call, so that the judge can time the ceilings."""
        count = request["bytes"] // 4
        source = torch.ones(count, device=self.device)
        target = torch.empty_like(source)
        scalar = torch.ones(1, device=self.device)
        self.calls["copy"] = lambda: (target.copy_(source), None)[1]
        self.calls["launch"] = lambda: (scalar.add_(0), None)[1]
        self.calls["nothing"] = self._nothing()
        self.sets = [[]]
        return {}


def load_lightly() -> None:
    """Has Inductor ask whether libraries with the processor's vector instructions can be loaded,
    without importing torch for each of them: seven times two seconds, which nothing there needs."""
    from torch._inductor.cpu_vec_isa import VecISA

    VecISA._avx_py_load = "import ctypes; ctypes.CDLL('__lib_path__')"


def main() -> None:
    """Entry point: ``python -m warpwright_oracle.baseline``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--library", required=True)
    given = parser.parse_args()
    channel = Channel(given.channel)
    # Compilers take seconds to import: better now than when a task's memory is held.
    importlib.import_module("torch._inductor.compile_fx")
    if given.device.startswith("cuda"):
        with channel.starting():
            torch.cuda.init()
            torch.cuda.synchronize()  # makes the context
    else:
        load_lightly()
        headers.keep(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "headers")
    baseline = Baseline(given.device, given.library, channel)
    names = ["adopt", "open", "compile", "give_up", "stage", "pin", "go", "forget", "bandwidth"]
    seed_everything(0)
    serve(channel, {name: getattr(baseline, name) for name in names})


if __name__ == "__main__":
    main()
