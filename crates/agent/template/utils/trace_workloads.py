"""The graphs of a task with workloads: one for each, and a few at sizes that no workload has.

A graph knows sizes as numbers only. Which of them follow from the inputs' sizes, and how, is seen
by comparing graphs. Probes are graphs at other sizes, for that comparison: `get_inputs` is called
with the arguments of a workload, whole numbers among them enlarged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from utils.graph_json import Refusal

# Probes are given up when tracing has taken this long.
PROBE_SECONDS = 40
# How whole numbers are enlarged: factor and addend. The results are odd.
ENLARGED = ((2, 1), (4, 3))
# Most whole numbers that are enlarged one by one.
MOST_SIZES = 4

Tracer = Callable[[Callable[[], Any]], dict[str, Any]]


def workloads(module: Any) -> list[tuple[str, Any]]:
    """Names and arguments."""
    out = []
    for i, entry in enumerate(module.get_workloads()):
        usual = f"workload {i + 1}"
        if isinstance(entry, dict) and "arguments" in entry:
            out.append((str(entry.get("name", usual)), entry["arguments"]))
        else:
            out.append((usual, entry))
    return out


def drawer(module: Any, arguments: Any) -> Callable[[], Any]:
    if isinstance(arguments, dict):
        return lambda: module.get_inputs(**arguments)
    return lambda: module.get_inputs(*arguments)


def trace_all(module: Any, trace: Tracer) -> dict[str, Any]:
    """`{"single"}`, or `{"workloads", "probes", "failed"}`."""
    if not hasattr(module, "get_workloads"):
        return {"single": trace(module.get_inputs)}
    began = time.monotonic()
    graphs: dict[str, dict[str, Any]] = {}
    failed: list[dict[str, str]] = []
    first: Exception | None = None
    of_workloads = workloads(module)
    for name, arguments in of_workloads:
        try:
            graph = trace(drawer(module, arguments))
        except Exception as e:
            first = first or e
            reason = (str(e).strip().splitlines() or [""])[0][:300]
            failed.append({"workload": name, "error": f"{type(e).__name__}: {reason}"})
            continue
        same = graphs.setdefault(json.dumps(graph["inputs"]), graph)
        same.setdefault("workloads", []).append(name)
    if not graphs:
        raise first or Refusal("the task has no workload", "list one in get_workloads")
    known = list(graphs.values())
    return {
        "workloads": known,
        "probes": probes(module, trace, of_workloads, known, began),
        "failed": failed,
    }


def probes(
    module: Any,
    trace: Tracer,
    of_workloads: list[tuple[str, Any]],
    known: list[dict[str, Any]],
    began: float,
) -> list[dict[str, Any]]:
    name = known[0]["workloads"][0]
    arguments = next(a for n, a in of_workloads if n == name)
    keys = list(arguments) if isinstance(arguments, dict) else list(range(len(arguments)))
    sizes = [k for k in keys if type(arguments[k]) is int and arguments[k] > 0]
    varied = [k for k in sizes if any(other[k] != arguments[k] for _, other in of_workloads)]
    # All at once, those that differ between workloads, or each alone.
    for attempt in ([sizes], [varied], [[k] for k in (varied or sizes)[:MOST_SIZES]]):
        found = []
        for enlarged in attempt:
            for factor, addend in ENLARGED if enlarged else ():
                if time.monotonic() - began > PROBE_SECONDS:
                    return []
                other = dict(arguments) if isinstance(arguments, dict) else list(arguments)
                for at, k in enumerate(enlarged):
                    other[k] = factor * arguments[k] + addend + 2 * at
                try:
                    graph = trace(drawer(module, other))
                except Exception:
                    continue
                if scalars(graph) == scalars(known[0]):
                    found.append(graph)
        if found:
            return found
    return []


def scalars(graph: dict[str, Any]) -> list[Any]:
    """The inputs that are numbers: they are part of the graph."""
    return [given.get("scalar") for given in graph["inputs"]]
