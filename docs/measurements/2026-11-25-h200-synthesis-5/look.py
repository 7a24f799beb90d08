"""Which tasks of a data set jump, or give what is not finite, on some draw of their inputs or with
other weights: the look that admission takes since this measurement, at tasks that were admitted
before it, all in a few processes.

    PYTHONPATH=python python3 look.py TASKS.jsonl RESULTS.jsonl [PROCESSES a GPU] [SECONDS]

Each line of TASKS.jsonl has `name` and `code`, and the `draws` that are wanted by their numbers
(the first eight by itself; see `Examiner.stretched`). Each of RESULTS.jsonl has, per output, what
float32 errs on the first draw, by the model as it is made and with other weights, and what a
program errs whose sums are in other orders and whose inputs are rounded (`honest`), all as if
outputs were as large as the first model's (`rms`); and per further draw the largest error of one
that errs 64 or 4 times as much, over that. Beside them whether all draws gave what is finite.
RESULTS.jsonl.jump has the names of those that jump, RESULTS.jsonl.infinite of those that are not
finite somewhere. Tasks are trusted here: the grammar wrote them.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from warpwright_oracle.examiner import Examiner, apart, size
from warpwright_oracle.families import changeable
from warpwright_oracle.reference import perturb
from warpwright_oracle.tensors import flatten, to_double
from warpwright_oracle.truth import Truth

DRAWS = list(range(8))
GPUS = torch.cuda.device_count()


class Held:
    """What the examiner wants of an oracle."""

    def __init__(self, code: str, device: torch.device) -> None:
        self.module = types.ModuleType("task")
        exec(compile(code, "task", "exec"), self.module.__dict__)
        self.device = device
        self.models = {name: self.made() for name in ("init", "other")}
        perturb(self.models["other"], 8)
        self.models = {name: model.to(device) for name, model in self.models.items()}
        self.truth = Truth(self)  # type: ignore[arg-type]
        given: list[torch.Tensor] = []
        flatten(self.draw(100, "own"), given)
        traits = {i: changeable(tensor) for i, tensor in enumerate(given)}
        self.traits = {i: known for i, known in traits.items() if known is not None}

    def made(self) -> torch.nn.Module:
        torch.manual_seed(7)
        return self.module.Model(*self.module.get_init_inputs()).eval()

    def draw(self, seed: int, _: str) -> Any:
        torch.manual_seed(seed)
        with self.device:
            return self.module.get_inputs()

    def settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def look(code: str, draws: list[int], device: torch.device) -> dict[str, Any]:
    held = Held(code, device)
    examiner = Examiner(held, [])  # type: ignore[arg-type]
    given = held.draw(100, "own")
    exact = {
        name: held.truth.under(contextlib.nullcontext(), to_double(given), name)
        for name in held.models
    }
    honest = held.truth.astray(given)
    if not honest or not all(exact.values()):
        raise ValueError("no truth in float64")
    outputs: list[dict[str, Any]] = [
        {
            "rms": size(truth),
            "float32": errors(held, examiner, given, exact, i),
            "honest": apart(erring, truth)[0],
            "stretched": [],
        }
        for i, (truth, erring) in enumerate(zip(exact["init"], honest, strict=True))
    ]
    whole, sizes = True, [each["rms"] for each in outputs]
    for done, number in enumerate(draws):
        shares, moved = examiner.stretched(100, number, sizes)
        whole = whole and min(shares) == 1.0
        for each, error in zip(outputs, moved, strict=True):
            each["stretched"].append(error)
        if not whole or (done % 2 and jumps(outputs)):
            break  # what more draws would say does not matter
    return {"outputs": outputs, "finite": whole}


def errors(
    held: Held, examiner: Examiner, given: Any, exact: dict[str, Any], output: int
) -> list[float]:
    """What float32 errs in an output, by each model."""
    found = []
    for name, truths in exact.items():
        examiner.model = held.models[name]
        truth, near = truths[output], examiner._outputs(given)[output]
        error, rms = apart(near.double() if near.is_floating_point() else near, truth)
        found.append(error * (size(exact["init"][output]) / rms if rms else 1.0))
    return found


def jumps(outputs: list[dict[str, Any]]) -> bool:
    """As `jump` in crates/judge/src/examination.rs does, with what the judge allows reckoned."""
    for each in outputs:
        least = 8 * 2**-23 * each["rms"]
        if each["float32"][1] > 100 * (each["float32"][0] + least):
            return True
        allowed = max(8 * max(each["float32"]), 3 * each["honest"]) + least
        seen = sorted(each["stretched"]) or [0.0]
        usual = seen[(len(seen) - 1) // 2]
        if seen[-1] > min(allowed, max(10 * usual, allowed / 16)):
            return True
    return False


def work(number: int, of: int, tasks: list[Any], results: str, until: float) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(1)
    device = torch.device("cuda", number % GPUS) if GPUS else torch.device("cpu")
    if GPUS:
        torch.cuda.set_device(device)
    with open(f"{results}.{number}", "w", encoding="utf-8") as out:
        for task in tasks[number::of]:
            if time.time() > until:
                break
            told, began = {"name": task["name"]}, time.time()
            try:
                told |= look(task["code"], task.get("draws", DRAWS), device)
            except Exception as error:  # a task that fails says so
                told["error"] = repr(error)[:200]
            if GPUS and torch.cuda.memory_reserved() > 2 << 30:
                torch.cuda.empty_cache()
            told["seconds"] = round(time.time() - began, 2)
            out.write(json.dumps(told) + "\n")
            out.flush()


def pass_over(tasks: list[Any], results: str, of: int, until: float) -> list[dict[str, Any]]:
    mp.spawn(work, (of, tasks, results, until), nprocs=of)
    parts = [Path(f"{results}.{number}") for number in range(of)]
    lines = [line for part in parts for line in part.read_text("utf-8").splitlines()]
    for part in parts:
        part.unlink()
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    tasks = [json.loads(line) for line in Path(sys.argv[1]).read_text("utf-8").splitlines()]
    results, of = sys.argv[2], max(GPUS, 1) * int((sys.argv[3:] or ["4"])[0])
    began, seconds = time.time(), float((sys.argv[4:] or ["1e9"])[0])
    found = pass_over(tasks, results, of, began + 0.9 * seconds)
    # Where memory was short for one of many, it may do for one of few.
    short = {each["name"] for each in found if "memory" in each.get("error", "")}
    if short:
        again = [task for task in tasks if task["name"] in short]
        found = [each for each in found if each["name"] not in short]
        found += pass_over(again, results, max(of // 4, 1), began + seconds)
    Path(results).write_text("".join(json.dumps(each) + "\n" for each in found), "utf-8")
    jump = [each["name"] for each in found if jumps(each.get("outputs", []))]
    infinite = [each["name"] for each in found if not each.get("finite", True)]
    Path(f"{results}.jump").write_text("".join(f"{name}\n" for name in jump), "utf-8")
    Path(f"{results}.infinite").write_text("".join(f"{name}\n" for name in infinite), "utf-8")
    failed = sum("error" in each for each in found)
    print(
        f"{len(found)} of {len(tasks)} looked at in {time.time() - began:.0f} s: {len(jump)} jump,"
    )
    print(f"{len(infinite)} are not finite somewhere, {failed} failed")
