"""Which tasks of a data set jump where errors are: the look that admission takes since this
measurement, at tasks that were admitted before it, all in a few processes.

    PYTHONPATH=python python3 brittle.py TASKS.jsonl RESULTS.jsonl [PROCESSES] [SECONDS]

Each line of TASKS.jsonl has `name` and `code`. Each of RESULTS.jsonl has, per output that is not of
integers, the root mean square and the largest errors: of float32, of another order of summation,
and of programs that err 8, 16, 64 and 512 times as much as an honest one (STRETCHES); for integers,
whether any differs. Tasks are trusted here: the grammar wrote them. RESULTS.jsonl.jump has the
names of those that jump, as far as these errors tell.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from warpwright_oracle.distance import distance
from warpwright_oracle.rounding import Reordered
from warpwright_oracle.tensors import flatten, to_double

STRETCHES = [int(s) for s in os.environ.get("STRETCHES", "8 8 16 16 64 64 512").split()]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def run(model: Any, mode: Any, inputs: Any, seed: int = 1) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    torch.manual_seed(seed)
    with torch.no_grad(), mode:
        flatten(model(*inputs), tensors)
    return tensors


def look(code: str) -> list[dict[str, Any]]:
    module = types.ModuleType("task")
    exec(compile(code, "task", "exec"), module.__dict__)
    torch.manual_seed(7)
    plain = module.Model(*module.get_init_inputs()).to(DEVICE).eval()
    wide = copy.deepcopy(plain).double()
    torch.manual_seed(100)
    inputs = [x.to(DEVICE) if isinstance(x, torch.Tensor) else x for x in module.get_inputs()]
    exact = run(wide, contextlib.nullcontext(), to_double(inputs))
    near = run(plain, contextlib.nullcontext(), copy.deepcopy(inputs))
    orders = run(wide, Reordered(), to_double(inputs))
    told: list[dict[str, Any]] = [
        {"float32": apart(n, t), "rms": rms(t), "stretched": [], "order": apart(o, t)}
        for n, o, t in zip(near, orders, exact, strict=True)
    ]
    for number, stretch in enumerate(STRETCHES):
        moved = run(wide, Reordered(stretch, everywhere=True), to_double(inputs), number)
        for each, given, truth in zip(told, moved, exact, strict=True):
            each["stretched"].append(apart(given, truth))
    return told


def apart(given: torch.Tensor, truth: torch.Tensor) -> float:
    if truth.is_floating_point():
        return distance(given.double(), truth).error
    return float(not torch.equal(given, truth))


def rms(truth: torch.Tensor) -> float | None:
    return distance(truth, truth).rms if truth.is_floating_point() else None


def jumps(outputs: list[dict[str, Any]]) -> bool:
    """Whether an output moves by more than what is allowed times the stretch, at any stretch below
    that where even smooth programs do."""
    for each in outputs:
        allowed = max(8 * each["float32"], 3 * each["order"])
        if each["rms"] is not None:
            allowed += 8 * 2**-23 * each["rms"]
        for stretch, error in zip(STRETCHES, each["stretched"], strict=True):
            # Not `>`: what is not a number jumps as well.
            if stretch < 512 and not error <= stretch * allowed:
                return True
    return False


def work(number: int, of: int, tasks: list[Any], results: str, until: float) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(1)
    with open(f"{results}.{number}", "w", encoding="utf-8") as out:
        for task in tasks[number::of]:
            if time.time() > until:
                break
            told = {"name": task["name"]}
            try:
                told["outputs"] = look(task["code"])
            except Exception as error:  # a task that fails says so
                told["error"] = repr(error)[:200]
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            out.write(json.dumps(told) + "\n")
            out.flush()


if __name__ == "__main__":
    tasks = [json.loads(line) for line in Path(sys.argv[1]).read_text("utf-8").splitlines()]
    results, of = sys.argv[2], int((sys.argv[3:] or ["4"])[0])
    until = time.time() + float((sys.argv[4:] or ["1e9"])[0])
    mp.spawn(work, (of, tasks, results, until), nprocs=of)
    lines = [
        line
        for number in range(of)
        for line in Path(f"{results}.{number}").read_text("utf-8").splitlines()
    ]
    Path(results).write_text("\n".join(lines) + "\n", "utf-8")
    told = [json.loads(line) for line in lines]
    names = [each["name"] for each in told if jumps(each.get("outputs", []))]
    Path(f"{results}.jump").write_text("".join(f"{name}\n" for name in names), "utf-8")
    print(
        len(names),
        "jump;",
        len(lines),
        "of",
        len(tasks),
        "looked at,",
        sum('"error"' in t for t in lines),
        "failed",
    )
