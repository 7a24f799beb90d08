"""Serves the baseline of a GPU on the host, and tells in which order it held the device and used it.

    holding.py --channel DESCRIPTOR

The compiler and what it compiles are real, for the host. What needs a GPU only leaves a note: waiting
until the GPU is idle, and timing the variants of a kernel. A request to compile says how the device
is asked for: `rightly`, or in one of the two wrong ways that the test must be able to see.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
from typing import Any

import torch
from torch._inductor import compile_fx
from torch._inductor.output_code import CompiledFxGraph
from torch._inductor.runtime.benchmarking import benchmarker
from warpwright_oracle.baseline import Baseline
from warpwright_oracle.channel import Channel, serve

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel", type=int, required=True)
    given = parser.parse_args()
    note(torch.cuda, "synchronize", "waits", instead=True)
    note(type(benchmarker), "benchmark_gpu", "times", instead=True)
    note(CompiledFxGraph, "__call__", "computes")
    compile_fx.compile_fx = compile_with_variants(compile_fx.compile_fx)
    channel = Telling(given.channel)
    baseline = Baseline("cpu", None, channel)
    baseline.cuda = True
    ways = {
        "rightly": baseline._computing_alone,
        "never": contextlib.nullcontext,
        "throughout": baseline._alone,
    }

    def compile_telling(request: dict[str, Any]) -> dict[str, Any]:
        told.clear()
        torch._dynamo.reset()
        baseline._computing_alone = ways[request["asks"]]  # type: ignore[method-assign]
        baseline.compile(request)
        return {"told": told}

    serve(channel, {"open": baseline.open, "compile": compile_telling})


if __name__ == "__main__":
    main()
