"""``python -m PACKAGE.check``: verifies the package on this machine against the references, on
fresh inputs, and times both. Exits with 0 if every workload that runs here is right, else with 1.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import inspect
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
    errors: list[tuple[float, float]] = []
    inputs: list[Any] = []
    with torch.no_grad():
        for number in range(SETS):
            torch.manual_seed(seed + number)
            inputs = _moved(_inputs(module), device)
            # Calls may change their inputs, which is a result too.
            given, same = _moved(inputs, device), _moved(inputs, device)
            made = [_call(task, model, given), given]
            expected = [reference(*same), same]
            errors.append(_compare(made, expected, _truth(reference, inputs)))
        error, most = _worst(errors)
        row |= {"error": error, "most": most, "result": "right" if error <= most else "wrong"}
        row["package_ms"] = _time(lambda: _call(task, model, inputs), device)
        row["reference_ms"] = _time(lambda: reference(*inputs), device)
    return row


def _inputs(module: Any) -> list[Any]:
    """Positional arguments of forward; a dict names them."""
    made = module.get_inputs()
    if isinstance(made, torch.Tensor):
        return [made]
    if hasattr(made, "__next__"):
        return list(made)
    names = list(inspect.signature(module.Model.forward).parameters)[1:]
    if isinstance(made, dict):
        return _by_name([], made, names)
    made = list(made)
    if made and isinstance(made[-1], dict) and made[-1] and set(made[-1]) <= set(names):
        first = made[:-1]
        if len(first) == 1 and isinstance(first[0], (list, tuple)):
            first = list(first[0])
        return _by_name(first, made[-1], names)
    return made


def _by_name(first: list[Any], named: dict[str, Any], names: list[str]) -> list[Any]:
    rest = [name for name in names[len(first) :] if name in named]
    return [*first, *(named[name] for name in rest)]


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
    if isinstance(value, dict):
        return {key: _doubled(item) for key, item in value.items()}
    return value


def _truth(reference: torch.nn.Module, inputs: list[Any]) -> Any:
    """The results and inputs in float64, if the reference can compute them."""
    given = _doubled(_moved(inputs, next(iter(_tensors(inputs)), torch.empty(0)).device.type))
    try:
        return [copy.deepcopy(reference).double()(*given), given]
    except (RuntimeError, TypeError, ValueError):
        return None


def _tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _trees.flatten(value, found)
    return found


def _worst(errors: list[tuple[float, float]]) -> tuple[float, float]:
    """The error that exceeds most what is allowed, else the one that comes closest."""
    return max(errors, key=lambda pair: (pair[0] > pair[1], pair[0] / max(pair[1], 1e-300)))


def _compare(made: Any, expected: Any, truth: Any) -> tuple[float, float]:
    """The largest error over the results' scale, and what the reference's own error allows."""
    results, references, truths = _tensors(made), _tensors(expected), _tensors(truth)
    if len(results) != len(references):
        return float("inf"), 0.0
    errors = [(0.0, 0.0)]
    for index, (one, other) in enumerate(zip(results, references, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return float("inf"), 0.0
        true = truths[index] if len(truths) == len(results) else None
        errors.append(_error(one, other, true))
    return _worst(errors)


def _error(
    one: torch.Tensor, other: torch.Tensor, true: torch.Tensor | None
) -> tuple[float, float]:
    if not (one.is_floating_point() or one.is_complex()):
        return (0.0, 0.0) if torch.equal(one, other) else (float("inf"), 0.0)
    eps = torch.finfo(one.dtype).eps
    if true is not None and true.shape == other.shape:
        scale = _scale(true)
        own = _distance(other, true) / scale
        if own < float("inf"):
            return _distance(one, true) / scale, 4 * own + 8 * eps
    # Both sides round, and sums of many numbers in float32 differ by their order.
    return _distance(one, other) / _scale(other), (8 if eps > 1e-4 else 64) * eps


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _scale(tensor: torch.Tensor) -> float:
    """The root of the mean square of the finite numbers, and not zero."""
    sizes = _wide(tensor).abs()
    sizes = sizes[sizes.isfinite()]
    return max(sizes.square().mean().sqrt().item(), 1e-30) if sizes.numel() else 1.0


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference. NaN agrees with NaN at its place alone, infinity with itself."""
    one, other = _wide(one), _wide(other)
    same = (one == other) | (one.isnan() & other.isnan())
    gaps = (one - other).abs().masked_fill(same, 0.0)
    return gaps.nan_to_num(float("inf"), float("inf")).max().item() if gaps.numel() else 0.0


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
