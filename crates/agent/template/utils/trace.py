"""Prints the operator graph of `model.py` as one JSON object.

    python3 -m utils.trace

The reference is built with its own init inputs, put in eval mode, and traced with `torch.export`
on fake tensors, so nothing is computed, and inputs of any size take no memory. Composite operators
(softmax, norms, activations) are decomposed to pointwise operators and reductions. Where export
fails, `make_fx` traces once more.

Of a task with workloads it prints one graph for each, and a few more at sizes that no workload
has: see `utils/trace_workloads.py`.

A graph longer than the shell's output limit is written to `.trace.json`, one node a line, and
the printed object names the file. Errors are one object too: {"error": ..., "hint": ...}.
There is no GPU in this shell: 'cuda' means the host.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from utils.graph_export import export_graph, make_fx_graph
from utils.graph_json import Refusal, input_meta, state_of, structure
from utils.trace_setup import map_cuda_to_cpu, shapes_of_recurrent_layers, unfilled
from utils.trace_workloads import trace_all

VERSION = 1
INLINE_CHARACTERS = 12_000

# Draws the inputs of one call.
Draw = Callable[[], Any]


def load(path: str) -> tuple[Any, list[Any], dict[str, Any]]:
    spec = importlib.util.spec_from_file_location("reference", path)
    if spec is None or spec.loader is None:
        raise Refusal(f"failed to load {path}", "the file must be a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference"] = module
    spec.loader.exec_module(module)
    for name in ("Model", "get_inputs"):
        if not hasattr(module, name):
            raise Refusal(f"{path} has no {name}", "see the KernelBench task format")
    if hasattr(module.Model, "warpwright_step"):
        raise Refusal(
            "the task has gradients, and only forward can be traced",
            "write a kernel for each half by hand: see SKILL.md",
        )
    init = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
    keywords: dict[str, Any] = {}
    if isinstance(init, dict):
        init, keywords = [], init
    elif len(init) == 2 and isinstance(init[0], (list, tuple)) and isinstance(init[1], dict):
        init, keywords = init
    return module, list(init), dict(keywords)


def inputs_of(draw: Draw, fake: Any) -> list[Any]:
    """The reference's inputs, as fake tensors where it makes them without looking at values."""
    try:
        with fake:
            return list(draw())
    except Exception:
        return list(draw())


def attributes(model: Any) -> list[tuple[Any, dict[str, Any]]]:
    """What each module holds, to undo what `forward` assigns while it is only traced."""
    return [(module, dict(module.__dict__)) for module in model.modules()]


def restore(saved: list[tuple[Any, dict[str, Any]]]) -> None:
    for module, held in saved:
        module.__dict__.clear()
        module.__dict__.update(held)


def built(path: str) -> tuple[Any, Any, str]:
    """The reference's module, its model, and the signature of the model's constructor."""
    import torch

    map_cuda_to_cpu()
    shapes_of_recurrent_layers()
    torch.manual_seed(0)
    module, init, keywords = load(path)
    with unfilled():
        model = module.Model(*init, **keywords).eval()
    return module, model, str(inspect.signature(module.Model.__init__))


def trace(path: str) -> dict[str, Any]:
    module, model, signature = built(path)
    return graph_of(model, signature, module.get_inputs)


def graph_of(model: Any, signature: str, draw: Draw) -> dict[str, Any]:
    import torch
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    inputs = inputs_of(draw, fake)
    held = attributes(model)
    with torch.no_grad():
        with fake, enable_python_dispatcher():
            shaped = [fake.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in inputs]
            try:
                shape = structure(model(*shaped))
            except Refusal:
                raise
            except Exception:  # fake tensors do not know every operator; real ones do
                shape = ""
        restore(held)
        if not shape:
            # Values are looked at: from here on with real ones.
            inputs = list(draw())
            shape = structure(model(*inputs))
            restore(held)
        try:
            graph = export_graph(model, inputs)
            how = "torch.export"
        except Refusal:
            raise
        except Exception as first:
            restore(held)
            try:
                inputs = list(draw())
                graph = make_fx_graph(model, inputs)
                how = "make_fx"
            except Refusal:
                raise
            except Exception:
                raise first from None
        restore(held)
    return {
        "version": VERSION,
        "tracer": how,
        "init_signature": signature,
        "inputs": input_meta(model, inputs),
        "state": state_of(model),
        "structure": shape,
        **graph,
    }


def by_lines(graph: dict[str, Any]) -> str:
    """JSON with one list entry a line, so that it can be read in pages."""
    parts = []
    for key, value in graph.items():
        if isinstance(value, list) and key in ("nodes", "state", "leaves", "constants"):
            rows = ",\n".join(json.dumps(v, separators=(",", ":")) for v in value)
            parts.append(f'"{key}":[\n{rows}\n]')
        else:
            parts.append(f'"{key}":{json.dumps(value, separators=(",", ":"))}')
    text = "{" + ",\n".join(parts) + "}"
    # The Read tool cuts long lines; JSON may be broken after any comma outside a string, and in
    # our strings a comma is followed by a space.
    return re.sub(r'(.{1000,1400}?,)(?=[\[{"\-0-9])', r"\1\n", text)


def several(graphs: dict[str, Any]) -> str:
    """The graphs of a task with workloads, each by lines. Only the first has the model's state."""
    every = [*graphs["workloads"], *graphs["probes"]]
    for graph in every[1:]:
        graph["state"] = []
    listed = {
        key: "[" + ",\n".join(by_lines(graph) for graph in graphs[key]) + "]"
        for key in ("workloads", "probes")
    }
    failed = json.dumps(graphs["failed"])
    return (
        f'{{"version":{VERSION},"workloads":{listed["workloads"]},\n'
        f'"probes":{listed["probes"]},\n"failed":{failed}}}'
    )


def printed(path: str) -> str:
    """What is printed of a reference: its graph, or those of its workloads."""
    module, model, signature = built(path)
    graphs = trace_all(module, lambda draw: graph_of(model, signature, draw))
    return by_lines(graphs["single"]) if "single" in graphs else several(graphs)


def main() -> int:
    warnings.filterwarnings("ignore")
    path = sys.argv[1] if len(sys.argv) > 1 else "model.py"
    try:
        if not os.path.exists(path):
            raise Refusal(f"{path} does not exist", "run this in the workspace")
        text = printed(path)
    except Refusal as e:
        print(json.dumps({"error": str(e), "hint": e.hint}))
        return 1
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}:{last.lineno}"
        first = (str(e).strip().splitlines() or [""])[0][:600]
        hint = f"raised at {where}; the reference must run on the host with its own inputs"
        print(json.dumps({"error": f"{type(e).__name__}: {first}", "hint": hint}))
        return 1
    if len(text) <= INLINE_CHARACTERS:
        print(text)
    else:
        with open(".trace.json", "w", encoding="utf-8") as f:
            f.write(text + "\n")
        lines = text.count("\n") + 1
        print(json.dumps({"file": ".trace.json", "lines": lines, "characters": len(text)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
