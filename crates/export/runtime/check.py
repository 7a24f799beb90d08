"""``python -m PACKAGE.check``: verifies the package on this machine against the references, on
fresh inputs, and times both. Exits with 0 if every workload that runs here is right, else with 1.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from . import _trees

SETS = 3
"""Fresh inputs per workload."""


def main() -> int:
    """Checks every workload."""
    parser = argparse.ArgumentParser(description="Verify this package, and time it.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seed", type=int, default=None, help="seed of weights and inputs")
    options = parser.parse_args()
    seed = int(time.time_ns() % 2**31) if options.seed is None else options.seed
    package = importlib.import_module(__package__ or "").package
    rows = []
    for name, task in package.tasks.items():
        _strict(task.spec["strict"])
        for index, workload in enumerate(task.operator.workloads):
            rows.append(_check(package, (name, task), (index, workload), seed))
    wrong = [row for row in rows if row["result"] == "wrong"]
    if options.json:
        print(json.dumps({"seed": seed, "checks": rows, "stats": package.stats()}))
    else:
        for row in rows:
            print(_line(row))
    return 1 if wrong else 0


def _strict(strict: bool) -> None:
    if strict:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False


def _line(row: dict[str, Any]) -> str:
    label = f"{row['task']}[{row['workload']}]"
    if row["result"] == "fallback":
        return f"{label}: not run here: {row['why']}"
    times = f"{row['package_ms']:.3f} ms, reference {row['reference_ms']:.3f} ms"
    return (
        f"{label}: {row['result']}, error {row['error']:.2e} (at most {row['most']:.2e}), {times}"
    )


def _call(task: Any, model: torch.nn.Module, inputs: list[Any]) -> Any:
    """The results of a call; of a step also the gradients, by autograd through the module."""
    return model(*inputs) if task.step is None else model.warpwright_step(model, *inputs)


def _check(
    package: Any, named_task: tuple[str, Any], numbered: tuple[int, Any], seed: int
) -> dict[str, Any]:
    (name, task), (index, workload) = named_task, numbered
    module = package.files.reference(f"{workload.spec['folder']}/reference.py")
    device = task.spec["device"]
    row: dict[str, Any] = {"task": name, "workload": workload.spec["name"] or str(index)}
    torch.manual_seed(seed)
    model = package.modules[name]()
    if task.unavailable is not None:
        return {**row, "result": "fallback", "why": task.unavailable}
    reference = task.operator.template()
    reference.load_state_dict(model.state_dict(), strict=True)
    model, reference = model.to(device), reference.to(device)
    model.warpwright_raises = True
    error, most = 0.0, 0.0
    inputs: list[Any] = []
    with torch.no_grad():
        for number in range(SETS):
            torch.manual_seed(seed + number)
            inputs = _moved(_inputs(module), device)
            made = _call(task, model, _moved(inputs, device))
            expected = reference(*_moved(inputs, device))
            worst, allowed = _compare(made, expected, _truth(reference, inputs))
            if worst - allowed > error - most or number == 0:
                error, most = worst, allowed
        row |= {"error": error, "most": most, "result": "right" if error <= most else "wrong"}
        row["package_ms"] = _time(lambda: _call(task, model, inputs), device)
        row["reference_ms"] = _time(lambda: reference(*inputs), device)
    return row


def _inputs(module: Any) -> list[Any]:
    made = module.get_inputs()
    return [made] if isinstance(made, torch.Tensor) else list(made)


def _moved(value: Any, device: str) -> Any:
    """A copy on the device."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device, copy=True)
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, device) for item in value)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    return value


def _doubled(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    if isinstance(value, (list, tuple)):
        return type(value)(_doubled(item) for item in value)
    return value


def _truth(reference: torch.nn.Module, inputs: list[Any]) -> Any:
    """The results in float64, if the reference can compute them."""
    import copy

    try:
        return copy.deepcopy(reference).double()(*_doubled(inputs))
    except (RuntimeError, TypeError):
        return None


def _compare(made: Any, expected: Any, truth: Any) -> tuple[float, float]:
    """The largest error over the results' scale, and what the reference's own error allows."""
    sets: list[list[torch.Tensor]] = [[], [], []]
    for value, tensors in zip((made, expected, truth), sets, strict=True):
        _trees.flatten(value, tensors)
    results, references, truths = sets
    if len(results) != len(references):
        return float("inf"), 0.0
    exact = len(truths) == len(results)
    worst, allowed = 0.0, 0.0
    for index, (one, other) in enumerate(zip(results, references, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return float("inf"), 0.0
        if not one.is_floating_point():
            if not torch.equal(one, other):
                return float("inf"), 0.0
            continue
        true = truths[index].double() if exact else other.double()
        scale = true.abs().mean().item() + 1e-30
        error = ((one.double() - true).abs().max() / scale).item()
        own = ((other.double() - true).abs().max() / scale).item()
        most = 4 * own + 64 * torch.finfo(one.dtype).eps
        if not exact:
            most = 1024 * torch.finfo(one.dtype).eps
        if not error - most <= worst - allowed or index == 0:
            worst, allowed = error, most
    return worst, allowed


def _time(call: Callable[[], Any], device: str) -> float:
    """Median milliseconds of a call."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    call()
    times, begun = [], time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - begun < 0.3 and len(times) < 200):
        wait()
        start = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


if __name__ == "__main__":
    sys.exit(main())
