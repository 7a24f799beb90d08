"""Measures a whole model with and without kernels in place of its modules.

What it says is no verdict and earns no reward: it runs in the process that executes the host code
of the candidates."""

from __future__ import annotations

import copy
import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from .clock import Timed, together
from .failure import Failed, told
from .graphs import captured
from .kernels import maker
from .loading import InputSet, load_inputs, load_model
from .observe import observe, run
from .patch import Patches, returns_known

MOST_DIFFERENCE = 0.05
"""Largest difference of the patched model's result from its own. Kernels may round in another
order; what is beyond it is another computation."""
PATCHED = ("patched", "patched_graph")
"""The calls with the kernels: one kernel after the other, and in a CUDA graph."""
MOST_ERROR = 0.1
"""Error of the model itself above which its float64 pass computed something else."""


def leaves(value: Any) -> list[torch.Tensor]:
    """The tensors of a model's result."""
    return [t for t in torch.utils._pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def wide(value: Any) -> Any:
    """A value with its floating tensors in float64."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if type(value) in (list, tuple):
        return type(value)(wide(item) for item in value)
    if type(value) is dict:
        return {key: wide(item) for key, item in value.items()}
    return value


def error(found: list[torch.Tensor], truth: list[torch.Tensor]) -> float | None:
    """The largest root mean square difference of a row (along the last dimension), relative to the
    root mean square of the truth's finite numbers. None where two results cannot be compared as
    numbers: they have no tensors, numbers that are not finite at different places, or other
    integers."""
    if not truth or len(found) != len(truth):
        return None
    worst = 0.0
    for mine, wanted in zip(found, truth, strict=True):
        if mine.shape != wanted.shape:
            return None
        if not wanted.is_floating_point():
            if not torch.equal(mine, wanted):
                return None
            continue
        mine, finite = mine.double(), wanted.isfinite()
        if not torch.equal(mine.isfinite(), finite):
            return None
        if not torch.equal(mine[~finite].nan_to_num(), wanted[~finite].nan_to_num()):
            return None
        if not finite.any():
            continue
        scale = wanted[finite].square().mean().sqrt().item()
        square = torch.where(finite, mine - wanted, 0.0).square()
        rows = square.mean(-1) if square.dim() else square
        difference = rows.max().sqrt().item()
        worst = max(worst, difference / scale if scale else difference)
    return worst if math.isfinite(worst) else None


def same(found: Any, wanted: Any) -> bool:
    """Whether two results differ by no more than by the order of rounding."""
    difference = error(leaves(found), [wide(tensor) for tensor in leaves(wanted)])
    return difference is not None and difference <= MOST_DIFFERENCE


class Measured:
    """The model, its input sets and the kernels for its regions."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.device = request["device"]
        dtype, seed = request["dtype"], request["seed"]
        torch.manual_seed(seed)
        self.model = load_model(request["model"], dtype, self.device)
        self.sets = load_inputs(request["inputs"], self.model, self.device, dtype, seed)
        self.truths = [self.truth(given) for given in self.sets]
        self.before = observe(self.model, self.sets, self.device)
        self.patches: list[Patches] = []
        self.failed: dict[str, str] = {}
        regions = {region["task"]: region for region in request["regions"]}
        for kernels in request["kernels"]:
            region = regions[kernels["task"]]
            try:
                if not returns_known(region["outputs"]):
                    raise Failed("candidate", "its modules return constants that are not known")
                make = maker(region, kernels, self.device)
                self.patches.append(Patches(self.model, region, make))
            except Failed as reason:
                self.failed[region["task"]] = str(reason)

    def truth(self, given: InputSet) -> list[torch.Tensor] | None:
        """The result in float64; None if the model cannot compute it."""
        usual = torch.get_default_dtype()
        try:
            # What the model makes itself, such as a mask, is of the default dtype.
            torch.set_default_dtype(torch.float64)
            model = copy.deepcopy(self.model).double()
            other = InputSet(given.name, {})
            other.args, other.kwargs = wide(given.args), wide(given.kwargs)
            found = leaves(run(model, other))
        except Exception:
            return None
        finally:
            torch.set_default_dtype(usual)
        own = error(leaves(run(self.model, given)), found)
        return found if own is not None and own < MOST_ERROR else None

    def patched(self, patches: list[Patches]) -> None:
        """Has the model these patches and no others."""
        for patch in self.patches:
            patch.undo()
        for patch in patches:
            patch.apply()

    def difference(self, kept: list[Patches], more: Patches) -> float | None:
        """The largest difference of the result with one region more from the model's own."""
        worst = 0.0
        for given in self.sets:
            self.patched([])
            own = leaves(run(self.model, given))
            self.patched([*kept, more])
            found = error(leaves(run(self.model, given)), [wide(tensor) for tensor in own])
            if found is None:
                return None
            worst = max(worst, found)
        return worst

    def gain(self, kept: list[Patches], more: Patches) -> dict[str, float]:
        """How many times faster the whole model is with one region more."""
        figures = []
        for given in self.sets:

            def without(given: InputSet = given) -> Any:
                more.undo()
                return run(self.model, given)

            def with_it(given: InputSet = given) -> Any:
                more.apply()
                return run(self.model, given)

            calls: dict[str, Callable[[], Any]] = {"without": without, "with": with_it}
            graphs = [self.graph(given, patches) for patches in (kept, [*kept, more])]
            if not any(isinstance(graph, str) for graph in graphs):
                # What the host saves is no gain where the host does nothing.
                calls = dict(zip(calls, graphs, strict=True))
            self.patched(kept)
            timed = Timed(calls, self.device)
            figures.append(timed.speedup("with", "without"))
        return together(figures)

    def graph(self, given: InputSet, patches: list[Patches]) -> Any:
        """The model with these patches in a CUDA graph, or why there is none."""
        if self.device == "cpu":
            return "the cpu device has no CUDA graphs"
        self.patched(patches)
        try:
            return captured(self.model, given, same)
        except Exception as problem:
            return str(problem) if isinstance(problem, Failed) else told(problem)

    def choose(self) -> tuple[list[Patches], list[dict[str, Any]]]:
        """The regions that make the whole model faster, one after the other."""
        kept: list[Patches] = []
        told_of: list[dict[str, Any]] = []
        for patch in self.patches:
            entry: dict[str, Any] = {
                "task": patch.task,
                "kept": False,
                "gain": None,
                "reason": None,
            }
            try:
                difference = self.difference(kept, patch)
                if difference is None or difference > MOST_DIFFERENCE:
                    raise Failed("candidate", "the model's result differs")
                entry["gain"] = self.gain(kept, patch)
                if entry["gain"]["low"] > 1:
                    kept.append(patch)
                    entry["kept"] = True
                else:
                    entry["reason"] = "the whole model does not gain by it"
            except Failed as problem:
                entry["reason"] = str(problem)
            except Exception as problem:
                entry["reason"] = f"the model raised with it: {told(problem)}"
            told_of.append(entry)
        for task, reason in self.failed.items():
            told_of.append({"task": task, "kept": False, "gain": None, "reason": reason})
        return kept, told_of

    def compiled(self) -> tuple[dict[str, Callable[..., Any]], dict[str, str]]:
        """The compiled baselines, and why one is missing."""
        modes = {"compile": None}
        if self.device != "cpu":
            modes["reduce_overhead"] = "reduce-overhead"
        made: dict[str, Callable[..., Any]] = {}
        missing: dict[str, str] = {}
        for name, mode in modes.items():
            torch._dynamo.reset()
            try:
                own = copy.deepcopy(self.model)
                call = torch.compile(own, mode=mode)
                for given in self.sets:
                    for _ in range(3):
                        with torch.no_grad():
                            call(*given.args, **given.kwargs)
                made[name] = call
            except Exception as problem:
                missing[name] = told(problem)
        return made, missing

    def on(
        self,
        at: int,
        kept: list[Patches],
        compiled: dict[str, Callable[..., Any]],
        missing: dict[str, str],
    ) -> dict[str, Any]:
        """All figures on one input set."""
        given = self.sets[at]
        truth = self.truths[at]

        def eager() -> Any:
            for patch in kept:
                patch.undo()
            return run(self.model, given)

        def patched() -> Any:
            for patch in kept:
                patch.apply()
            return run(self.model, given)

        calls: dict[str, Callable[[], Any]] = {"eager": eager, "patched": patched}
        graph = self.graph(given, kept)
        if isinstance(graph, str):
            if self.device != "cpu":
                missing["patched_graph"] = f"{given.name}: {graph}"
        else:
            calls["patched_graph"] = graph
        for name, call in compiled.items():

            def baseline(call: Callable[..., Any] = call) -> Any:
                with torch.no_grad():
                    return call(*given.args, **given.kwargs)

            calls[name] = baseline
        errors: dict[str, float | None] = {}
        for name, call in calls.items():
            results = leaves(call())
            errors[name] = error(results, truth) if truth is not None else None
        timed = Timed(calls, self.device)
        times = {name: timed.milliseconds(name) for name in calls}
        ours = [name for name in PATCHED if name in calls]
        fastest = min(ours, key=lambda name: times[name]["value"])
        return {
            "name": given.name,
            "milliseconds": times,
            "fastest": fastest,
            "speedup": {name: timed.speedup(fastest, name) for name in calls if name not in ours},
            "error": errors,
            "peak_bytes": {name: self.peak(call) for name, call in calls.items()},
        }

    def peak(self, call: Callable[[], Any]) -> int | None:
        """The most memory of the GPU that torch takes in one call."""
        if self.device == "cpu":
            return None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    def answer(self, regions: list[dict[str, Any]]) -> dict[str, Any]:
        """The figures of the whole model."""
        kept, told_of = self.choose()
        self.patched([])
        compiled, missing = self.compiled()
        sets = [self.on(at, kept, compiled, missing) for at in range(len(self.sets))]
        self.patched(kept)
        after = observe(self.model, self.sets, self.device)
        counts = {patch.task: patch.counts() for patch in kept}
        times = []
        for region in regions:
            pairs = []
            for given in self.sets:
                pair = {}
                for name, found in (("before", self.before), ("after", after)):
                    served = region["modules"] if given.name in region["calls"] else []
                    nodes = [found.nodes[path] for path in served if path in found.nodes]
                    seconds = [node.seconds.get(given.name, 0.0) for node in nodes]
                    pair[name] = sum(seconds) * 1e3
                pairs.append(pair)
            times.append({"task": region["task"], "times": pairs})
        for entry in told_of:
            entry["replaced_calls"], entry["fallback_calls"] = counts.get(entry["task"], (0, 0))
        for figures in sets:
            figures["profiled"] = {
                "before": self.before.seconds[figures["name"]] * 1e3,
                "after": after.seconds[figures["name"]] * 1e3,
            }
        return {"input_sets": sets, "regions": told_of, "missing": missing, "times": times}


def main() -> None:
    """Reads the request and writes the answer, also where the request fails."""
    request = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        found = Measured(request).answer(request["regions"])
    except Failed as problem:
        found = {"failed": {"kind": problem.kind, "message": str(problem)}}
    with answers:
        json.dump(found, answers)


if __name__ == "__main__":
    main()
