"""The baseline process: times one task's eager and compiled reference.

The judge trusts its values, but not the task's code in it. On the cpu device it allocates from an
arena like a candidate does, so that page faults and allocator speed cost both sides the same. On a
GPU it uses torch's caching allocator, which CUDA graphs need.
"""

from __future__ import annotations

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

from . import extension, headers, meta_compile, precision
from .arena import Arena, initialise
from .arguments import are_named, invoke
from .channel import Channel, arguments, serve
from .distance import distance, pieces
from .peak import peak_bytes
from .plain import plain
from .player import Call, Player
from .process_reuse import ProcessReuse
from .reference import Reference, bound, perturb, seed_everything
from .sizes import LARGE_BYTES
from .steps import compiled
from .tensors import flatten, unflatten

MODES: dict[str, dict[str, Any]] = {
    "compile": {},
    "reduce_overhead": {"mode": "reduce-overhead"},
    "max_autotune": {"mode": "max-autotune"},
}


APART_BYTES = 64 << 30
"""Address space for memory mapped during windows: more than a candidate may use."""


class Baseline(Player):
    """State between requests."""

    as_they_are = False

    def __init__(self, device: str, library: str, channel: Channel) -> None:
        super().__init__(None, device.startswith("cuda"))
        self.device = device
        self.library = library
        self.channel = channel
        self.holding = False
        self.apart: Arena | None = None
        """On a GPU, the address space at which it maps memory as a candidate does."""
        self.cores = os.sched_getaffinity(0)
        self.keep: int | None = None
        self.graphs: set[str] = set()
        self.warm: list[Any] = []
        """Inputs of the warm-up calls of all baselines."""
        self.made: tuple[tuple[Any, ...], Reference, torch.nn.Module] | None = None
        """A reference and its model on the host, with the request fields that they were made
        from."""

    def adopt(self, request: dict[str, Any]) -> dict[str, Any]:
        """Maps the memory whose descriptor comes with the request, and allocates from it from now
        on. Only on the cpu device, where the task determines the size."""
        descriptor = self.channel.descriptor()
        size = request["arena_bytes"]
        self.arena = Arena(self.device, self.library).reach(descriptor, size, populate=True)
        os.close(descriptor)
        self.arena.install(spill=True)
        return {}

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Loads the reference. Holds the GPU itself, after the work on the host. ``artifact``:
        compiled kernels that the reference calls, where the judge times its own kernels on both
        sides. ``weights``: the initial ones, or those perturbed like the oracle's."""
        precision.apply(request["profile"])
        bound(request.get("device_bytes"))
        self.sets, self.results, self.warm = [], [], []
        if request.get("artifact") is not None:
            extension.install(Path(request["artifact"]), self.device)
        self.reference, model = self._make(request)
        self.made = None
        if request["weights"] == "other":
            perturb(model, request["seed"] + 1)
        self.graphs = set()
        with self._holding("shared"):
            self.model = self.reference.move(model)
            self.calls = {"eager": self.model, "nothing": self._nothing()}
        return {"versions": precision.fingerprint()}

    def close(self) -> None:
        """Lets this process's threads run on all cores again."""
        self._run_on(self.cores)

    def _make(self, request: dict[str, Any]) -> tuple[Reference, torch.nn.Module]:
        wanted = tuple(request[name] for name in ("source", "profile", "mode", "seed"))
        if self.made is None or self.made[0] != wanted:
            reference = Reference(request["source"], self.device, request["mode"])
            self.made = (wanted, reference, reference.make(request["seed"]))
        return self.made[1:]

    def meta_compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Creates the model and compiles it without device memory; ``missing`` is the reason if
        that fails. Raises only if this process lost the device; the process is unusable then."""
        from torch._inductor.runtime.benchmarking import benchmarker

        precision.apply(request["profile"])
        noise = io.StringIO()
        with contextlib.redirect_stdout(noise):
            try:
                _, model = self._make(request)
                given = meta_compile.inputs(request["source"], request["mode"], request["seed"])
            except Exception as error:  # the task's own error; ``open`` will report it
                return {"missing": f"{type(error).__name__}: {error}"[:400]}
            modes = [MODES[which] for which in request["which"]]
            if self.cuda:
                torch.cuda.set_per_process_memory_fraction(meta_compile.SHARE)
            with self._taking(type(benchmarker), "benchmark_gpu"):
                missing = meta_compile.compile_on_meta(
                    model, given, torch.device(self.device), modes
                )
            if self.cuda:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()
                torch.cuda.set_per_process_memory_fraction(1.0)
        return {"missing": missing}

    def _nothing(self) -> Call:
        """The empty call with which windows are compared. On a GPU it touches the device once."""
        if not self.cuda:
            return lambda *_, **__: None
        scalar = self.pulse = torch.ones(1, device=self.device)
        return lambda *_, **__: (scalar.add_(0), None)[1]

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compiles one baseline and runs it until it is warm. Holds the device alone while
        computing on it: compilers choose the fastest variant of a kernel by timing, and timings
        beside other work would give a slow baseline. The rest of compilation does not hold the
        device. Each hold may wait for a measured window, so there are as few holds as possible."""
        which = request["which"]
        started = time.perf_counter()
        noise = io.StringIO()
        with contextlib.redirect_stdout(noise), torch.no_grad():
            if which != "eager":
                self.calls[which] = compiled(self.model, MODES[which])
            if which in ("reduce_overhead", "max_autotune"):
                self.graphs.add(which)
            calls = request["warm_calls"]
            with self._alone():
                if not self.warm:
                    self.warm = self.reference.inputs(request["seed"])
                if which == "eager":
                    self._call(which, calls)
            if which != "eager":
                with self._computing_alone():
                    self._call(which, 1)
                with self._alone():
                    self._call(which, calls - 1)
        return {"seconds": time.perf_counter() - started}

    def _call(self, which: str, times: int) -> None:
        for _ in range(times):
            if which in self.graphs:
                torch.compiler.cudagraph_mark_step_begin()
            invoke(self.calls[which], self.warm)

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        return self._holding("alone")

    @contextlib.contextmanager
    def _holding(self, how: str) -> Iterator[None]:
        """Holds the GPU until all work submitted within is complete."""
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
        """Makes compiled code, and the timing of its variants, hold the device alone. Removes the
        wrappers afterwards, since timed calls would include them."""
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
        """Releases one baseline, which did not fit into memory."""
        which = request["which"]
        self.calls.pop(which, None)
        self.sets, self.results = [], []
        if which in self.graphs:
            # CUDA graphs hold its buffers. The remaining baselines record their graphs again.
            from torch._inductor.cudagraph_trees import reset_cudagraph_trees

            self.graphs.discard(which)
            torch._dynamo.reset()
            reset_cudagraph_trees()
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()
        return {}

    def stage(self, request: dict[str, Any]) -> dict[str, Any]:
        """Makes the inputs of the given seeds, as a candidate gets them. ``keep``: the number of
        calls whose results stay alive, so that the next call finds its memory in no cache; None for
        all."""
        self.sets, self.results, self.warm = [], [], []
        self.sets = [self.reference.inputs(seed) for seed in request["seeds"]]
        self.keep = request["keep"]
        if self.cuda:
            torch.cuda.synchronize()
        return {}

    def agree(self, request: dict[str, Any]) -> dict[str, Any]:
        """The largest difference between each baseline's results and eager's, per output. None
        where shapes, finite elements or integers differ. Compiled code is an independent honest
        implementation."""
        # Of large tasks the memory holds few sets of inputs and results.
        self.warm = []
        eager = self._results("eager", request["seed"])
        # A small part of the module's state may change in later calls.
        eager = [t if t.nbytes >= LARGE_BYTES else t.clone() for t in eager]
        names = [name for name in self.calls if name not in ("eager", "nothing")]
        apart = {}
        for name in names:
            # The next replay of a CUDA graph overwrites these results.
            found = self._results(name, request["seed"])
            if len(found) != len(eager):
                apart[name] = [None] * len(eager)
                continue
            pairs = zip(found, eager, strict=True)
            apart[name] = [difference(mine, theirs) for mine, theirs in pairs]
            del found
        return {"apart": apart}

    def _results(self, which: str, seed: int) -> list[torch.Tensor]:
        if which in self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        # Drawn for each, and small ones copied: the reference may change them, and the module hold
        # them.
        drawn: list[torch.Tensor] = []
        tree = flatten(self.reference.inputs(seed), drawn)
        inputs = unflatten(tree, [t if t.nbytes >= LARGE_BYTES else t.clone() for t in drawn])
        drawn.clear()
        seed_everything(1)
        with torch.no_grad():
            given = invoke(self.calls[which], inputs)
        tensors: list[torch.Tensor] = []
        flatten(given, tensors)
        return tensors

    def spare(self, _: dict[str, Any]) -> dict[str, Any]:
        """Returns unused memory of torch's caching allocator to the GPU."""
        self.results = []
        if self.cuda:
            torch.cuda.empty_cache()
        return {}

    def peak(self, _: dict[str, Any]) -> dict[str, Any]:
        """Most memory that this process has held."""
        return {"bytes": peak_bytes(self.cuda)}

    def go(self, request: dict[str, Any]) -> dict[str, Any]:
        """As ``Player.go``. Where candidates map the memory of their inputs, it maps the same
        amount."""
        if size := request["apart_bytes"]:
            descriptor = self.channel.descriptor()
            self._beside(size).open_apart(descriptor, 0, size)
            os.close(descriptor)
        try:
            return super().go(request)
        except BaseException:
            # Nobody asks to forget a window that failed.
            if self.apart is not None:
                self.apart.close_apart()
            raise

    def _beside(self, size: int) -> Arena:
        if self.apart is None:
            self.apart = Arena(self.device, self.library)
            self.apart.reserve(APART_BYTES)
        if size > APART_BYTES:
            raise MemoryError(f"{size} bytes of inputs are more than a window may have")
        return self.apart

    def forget(self, request: dict[str, Any]) -> dict[str, Any]:
        """See ``Player``; unmaps what the window mapped."""
        if self.apart is not None:
            self.apart.close_apart()
        return super().forget(request)

    def _run(self, which: str, order: list[int]) -> list[Any]:
        """As for a candidate. Baselines with CUDA graphs own one set of outputs, which each call
        overwrites; a user has to mark steps as well. Where not all results are kept, the last one
        is reported as often as a candidate reports each of its own."""
        self.results = results = deque[Any](maxlen=1 if which in self.graphs else self.keep)
        graphed, named = which in self.graphs, are_named(self.sets)
        call, sets, mark = self.calls[which], self.sets, torch.compiler.cudagraph_mark_step_begin
        with torch.no_grad():
            for index in order:
                if graphed:
                    mark()
                if named:
                    results.append(call(*sets[index], **sets[index].named))
                else:
                    results.append(call(*sets[index]))
        return list(results) if len(results) == len(order) else [results[-1]] * len(order)

    def bandwidth(self, request: dict[str, Any]) -> dict[str, Any]:
        """Stages a copy of ``bytes`` bytes, a minimal launch and an empty call, with which the
        judge times the device's ceilings."""
        count = request["bytes"] // 4
        source = torch.ones(count, device=self.device)
        target = torch.empty_like(source)
        scalar = torch.ones(1, device=self.device)
        self.calls["copy"] = lambda: (target.copy_(source), None)[1]
        self.calls["launch"] = lambda: (scalar.add_(0), None)[1]
        self.calls["nothing"] = self._nothing()
        self.sets = [[]]
        return {}


def difference(mine: torch.Tensor, theirs: torch.Tensor) -> float | None:
    """The largest difference. None where shapes or the sets of finite elements differ, or integers
    differ."""
    mine, theirs = plain(mine), plain(theirs)
    if mine.shape != theirs.shape:
        return None
    if not theirs.is_floating_point():
        return 0.0 if torch.equal(mine, theirs) else None
    error = 0.0
    for one, other in pieces(mine, theirs):
        told = distance(one, other.double())
        if not told.agrees:
            return None
        error = max(error, told.error)
    return error


def load_lightly() -> None:
    """Makes Inductor test, without importing torch, whether libraries with the processor's vector
    instructions load. The import takes two seconds in each of seven tests, which do not need it."""
    from torch._inductor.cpu_vec_isa import VecISA

    VecISA._avx_py_load = "import ctypes; ctypes.CDLL('__lib_path__')"


def main() -> None:
    """Entry point: ``python -m warpwright_oracle.baseline``."""
    given = arguments().parse_args()
    channel = Channel(given.channel)
    # Compilers take seconds to import. Import them before the process holds a task's memory.
    importlib.import_module("torch._inductor.compile_fx")
    if given.device.startswith("cuda"):
        initialise()
        with channel.starting():
            torch.cuda.init()
            torch.cuda.synchronize()  # creates the context
    else:
        load_lightly()
        headers.keep(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "headers")
    turns = ProcessReuse(lambda: Baseline(given.device, given.library, channel), channel)
    names = [
        "adopt",
        "agree",
        "meta_compile",
        "open",
        "compile",
        "give_up",
        "stage",
        "spare",
        "pin",
        "turn",
        "go",
        "forget",
        "bandwidth",
        "peak",
    ]
    seed_everything(0)
    serve(channel, turns.handlers(names))


if __name__ == "__main__":
    main()
