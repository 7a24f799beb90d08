"""Serves the oracle or the baseline of a GPU on the host, and tells in which order it held the device
and used it.

    holding.py --channel DESCRIPTOR [--library PATH]

With a library to map memory with it is the oracle, else the baseline. The models, the compiler and what it compiles are
real, for the host. What needs a GPU only leaves a note: waiting until the GPU is idle, and timing the
variants of a kernel. A request says how the device is asked for: `rightly`, or in one of the two wrong
ways that the test must be able to see.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
from typing import Any

import torch
from torch._inductor import compile_fx
from torch._inductor.output_code import CompiledFxGraph
from torch._inductor.runtime.benchmarking import benchmarker
from warpwright_oracle import oracle as oracle_module
from warpwright_oracle import sizes
from warpwright_oracle.arena import Arena
from warpwright_oracle.baseline import Baseline
from warpwright_oracle.channel import Channel, serve
from warpwright_oracle.oracle import Oracle
from warpwright_oracle.reference import Reference, perturb, seed_everything

told: list[str] = []


class Telling(Channel):
    """Notes what is held once the judge has agreed."""

    def _hold(self, how: str) -> None:
        super()._hold(how)
        told.append(how)


def note(owner: Any, name: str, what: str, instead: bool = False) -> None:
    """Has a function leave a note when it begins, or do nothing else."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        told.append(what)
        return None if instead else function(*args, **kwargs)

    setattr(owner, name, noted)


def compile_with_variants(compile_graph: Any) -> Any:
    """A compiler that times a variant first, as for a GPU."""

    @functools.wraps(compile_graph)
    def compile_noted(*args: Any, **kwargs: Any) -> Any:
        told.append("compiles")
        benchmarker.benchmark(lambda: None, device="cuda")
        compiled = compile_graph(*args, **kwargs)
        told.append("compiled")
        return compiled

    return compile_noted


def serve_baseline(channel: Telling) -> None:
    note(type(benchmarker), "benchmark_gpu", "times", instead=True)
    note(CompiledFxGraph, "__call__", "computes")
    note(torch.cuda, "set_per_process_memory_fraction", "bounds", instead=True)
    compile_fx.compile_fx = compile_with_variants(compile_fx.compile_fx)
    baseline = Baseline("cpu", "", channel)
    baseline.cuda = True
    ways = {
        "rightly": baseline._computing_alone,
        "never": contextlib.nullcontext,
        "throughout": baseline._alone,
    }

    def open_telling(request: dict[str, Any]) -> dict[str, Any]:
        told.clear()
        baseline.open(request)
        return {"told": told}

    def meta_compile_telling(request: dict[str, Any]) -> dict[str, Any]:
        told.clear()
        torch._dynamo.reset()
        missing = baseline.meta_compile(request)["missing"]
        return {"told": [*told, f"missing: {missing}"]}

    def compile_telling(request: dict[str, Any]) -> dict[str, Any]:
        told.clear()
        if not request.get("keep", False):
            torch._dynamo.reset()
        baseline._computing_alone = ways[request["asks"]]  # type: ignore[method-assign]
        baseline.compile(request)
        return {"told": told}

    handlers = {
        "open": open_telling,
        "meta_compile": meta_compile_telling,
        "compile": compile_telling,
    }
    serve(channel, handlers)


def hashed(model: torch.nn.Module) -> str:
    """Of the names and values of the weights."""
    whole = hashlib.sha256()
    for name, value in model.state_dict().items():
        whole.update(name.encode() + value.numpy().tobytes())
    return whole.hexdigest()


def serve_oracle(channel: Telling, library: str) -> None:
    oracle = Oracle("cpu", library, channel)
    oracle.cuda = True
    asking = oracle._sharing

    def open_telling(request: dict[str, Any]) -> dict[str, Any]:
        asks = request["asks"]
        oracle.load(request)
        told.clear()
        oracle._sharing = asking if asks == "rightly" else contextlib.nullcontext  # type: ignore
        with channel.holding("shared") if asks == "throughout" else contextlib.nullcontext():
            oracle.open(request)
        return {"told": told}

    def adopt(request: dict[str, Any]) -> dict[str, Any]:
        told.clear()
        oracle._sharing = asking  # type: ignore[method-assign]
        oracle.adopt(request)
        return {"told": told}

    def weights(_: dict[str, Any]) -> dict[str, Any]:
        return {"told": [hashed(oracle.models[variant]) for variant in ("init", "other")]}

    def wanted(request: dict[str, Any]) -> dict[str, Any]:
        """Each variant made on its own, with nothing in between that could draw random numbers."""
        model, seed = oracle.reference.module.Model, request["seed"]
        seed_everything(seed)
        init = model()
        seed_everything(seed)
        other = model()
        perturb(other, seed + 1)
        return {"told": [hashed(init), hashed(other)]}

    def foreseen(request: dict[str, Any]) -> dict[str, Any]:
        """What is foreseen of a task whose size is no reason not to, and what it turns out to be."""
        sizes.SMALL_BYTES = request["small_bytes"]
        source, mode = request["source"], request["mode"]
        seen = sizes.foresee(source, mode, request["seed"])
        oracle.load(request)
        return {"foreseen": seen, "opened": oracle.open(request)}

    def closed(_: dict[str, Any]) -> dict[str, Any]:
        oracle.close()
        return {"told": []}

    handlers = {"open": open_telling, "adopt": adopt, "foreseen": foreseen}
    stored = {"inputs": oracle.inputs, "provide": oracle.provide, "closed": closed}
    serve(channel, {**handlers, **stored, "weights": weights, "wanted": wanted})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--library")
    given = parser.parse_args()
    note(torch.cuda, "synchronize", "waits", instead=True)
    note(Reference, "build", "builds")
    note(Reference, "move", "moves")
    note(Reference, "inputs", "draws")
    note(oracle_module, "perturb", "perturbs")
    note(Oracle, "call", "computes")
    note(Oracle, "given", "computes")
    note(Arena, "beside", "maps")
    note(oracle_module, "Arena", "maps")
    channel = Telling(given.channel)
    if given.library is None:
        serve_baseline(channel)
    else:
        serve_oracle(channel, given.library)


if __name__ == "__main__":
    main()
