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
import io
import time
from collections.abc import Callable
from typing import Any

import torch

from . import precision
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

    def __init__(self, device: str, arena: Arena | None, channel: Channel) -> None:
        super().__init__(arena, device.startswith("cuda"))
        self.device = device
        self.channel = channel
        self.tuning = False
        self.graphs: set[str] = set()

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Loads the reference."""
        precision.apply(request["profile"])
        bound(request.get("device_bytes"))
        self.sets, self.results = [], []
        self.reference = Reference(request["source"], self.device, request["mode"], request["seed"])
        self.graphs = set()
        self.calls = {"eager": self.reference.model, "nothing": self._nothing()}
        return {"versions": precision.fingerprint()}

    def _nothing(self) -> Call:
        """What the windows are compared with. On a GPU it touches the device once."""
        if not self.cuda:
            return lambda *_: None
        scalar = torch.ones(1, device=self.device)
        return lambda *_: (scalar.add_(0), None)[1]

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compiles one baseline and runs it until it is warm."""
        which = request["which"]
        started = time.perf_counter()
        noise = io.StringIO()
        with contextlib.redirect_stdout(noise):
            if which != "eager":
                self.calls[which] = torch.compile(self.reference.model, **MODES[which])
            if which in ("reduce_overhead", "max_autotune"):
                self.graphs.add(which)
            inputs = self.reference.inputs(request["seed"])
            with torch.no_grad():
                for _ in range(request["warm_calls"]):
                    self._begin(which)
                    self.calls[which](*inputs)
            if self.cuda:
                torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - started}

    def tune_alone(self) -> None:
        """Has the compiler time the variants of a kernel only while nothing else computes on the
        device: what it measured beside others would make a slow baseline."""
        from torch._inductor.runtime import benchmarking, triton_heuristics

        tuner, timer = triton_heuristics.CachingAutotuner, type(benchmarking.benchmarker)
        for owner, name in ((tuner, "benchmark_all_configs"), (timer, "benchmark_gpu")):
            setattr(owner, name, self._alone(getattr(owner, name)))

    def _alone(self, measure: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(measure)
        def measured(*args: Any, **kwargs: Any) -> Any:
            if self.tuning:
                return measure(*args, **kwargs)
            self.tuning = True
            try:
                with self.channel.alone():
                    return measure(*args, **kwargs)
            finally:
                self.tuning = False

        return measured

    def give_up(self, request: dict[str, Any]) -> dict[str, Any]:
        """Forgets one baseline, which did not fit."""
        self.calls.pop(request["which"], None)
        self.graphs.discard(request["which"])
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()
        return {}

    def _begin(self, which: str) -> None:
        if which in self.graphs:
            torch.compiler.cudagraph_mark_step_begin()

    def stage(self, request: dict[str, Any]) -> dict[str, Any]:
        """Inputs of the given seeds: the same values as the candidate's."""
        self.sets = [self.reference.inputs(seed) for seed in request["seeds"]]
        if self.cuda:
            torch.cuda.synchronize()
        return {}

    def go(self, request: dict[str, Any]) -> dict[str, Any]:
        """As for a candidate. Graphed baselines own one set of outputs, which each call overwrites:
        marking a step is what a user of theirs has to do as well."""
        which = request["which"]
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
        self.sets = [[]]
        return {}


def main() -> None:
    """Entry point: ``python -m warpwright_oracle.baseline``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--arena", type=int, required=True)
    parser.add_argument("--arena-bytes", type=int, required=True)
    parser.add_argument("--library", required=True)
    given = parser.parse_args()
    channel = Channel(given.channel)
    arena = None
    if not given.device.startswith("cuda"):
        arena = Arena(given.device, given.library, given.arena, given.arena_bytes, populate=True)
        arena.install(spill=True)
    baseline = Baseline(given.device, arena, channel)
    if baseline.cuda:
        baseline.tune_alone()
    names = ["open", "compile", "give_up", "stage", "pin", "go", "forget", "bandwidth"]
    seed_everything(0)
    serve(channel, {name: getattr(baseline, name) for name in names})


if __name__ == "__main__":
    main()
