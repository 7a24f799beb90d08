#!/usr/bin/env python3
"""Reads, opens and judges the definitions of a data set, each at its smallest workload.

    python3 benches/definitions/measure.py DIR --out OUT [--device cpu] [--most-mib 4] [--turns 2]

DIR has a folder with `definition.json` and `workload.jsonl` per definition, at any depth, as
SOL-ExecBench has. `warpwright` is the one on the PATH.

1. `warpwright task show` reads every definition with all its workloads.
2. OUT/definitions gets a copy of each definition that was read, with one workload: that with the
   fewest bytes of inputs and outputs. Definitions above `--most-mib` are left out: on the cpu
   device they would take minutes each.
3. `warpwright eval` opens each, and the built-in policy writes a kernel that the judge judges.

OUT/definitions.csv has one row per definition, and OUT/definitions-outcomes.csv counts outcomes.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

BYTES = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
}


def whole_bytes(definition: dict[str, Any], workload: dict[str, Any]) -> int:
    """Bytes of the inputs and outputs of a workload; 0 if one has no elements."""
    axes: dict[str, int] = {}
    for name, axis in definition["axes"].items():
        if axis["type"] == "const":
            axes[name] = axis["value"]
        elif axis["type"] == "var":
            axes[name] = workload["axes"][name]
    for name, axis in definition["axes"].items():
        if axis["type"] == "expr" and re.fullmatch(r"[\w+\-*/%() ]+", axis["expression"]):
            axes[name] = int(eval(axis["expression"], {"__builtins__": {}}, dict(axes)))
    total = 0
    for tensor in (*definition["inputs"].values(), *definition["outputs"].values()):
        count = BYTES.get(tensor["dtype"], 1)
        for axis in tensor["shape"] or []:
            count *= int(axis) if axis.isdigit() else axes[axis]
        if count == 0:
            return 0
        total += count
    return total


def unread(folder: Path) -> str:
    """Why a definition cannot be read; empty if it can."""
    command = ["warpwright", "task", "show", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else reason(done.stderr.strip())


def smallest(folder: Path, out: Path, most: int, name: str) -> str:
    """Copies a definition with its smallest workload. Why not, if it is above the limit."""
    definition = json.loads((folder / "definition.json").read_text())
    lines = (folder / "workload.jsonl").read_text().splitlines()
    workloads = [json.loads(line) for line in lines if line.strip()]
    sizes = [whole_bytes(definition, workload) for workload in workloads]
    size, index = min((size, index) for index, size in enumerate(sizes) if size)
    if size > most:
        return f"above {most / 2**20:g} MiB at its smallest workload"
    place = out / name
    place.mkdir(parents=True, exist_ok=True)
    definition["name"] = name
    (place / "definition.json").write_text(json.dumps(definition))
    (place / "workload.jsonl").write_text(json.dumps(workloads[index]) + "\n")
    return ""


def reason(text: str) -> str:
    """A message without what differs from definition to definition."""
    text = text.split("\n")[0].removeprefix("error: ").split("the first: ")[-1]
    text = text.split("; ")[0].split(": sample new")[0]
    text = re.sub(r"^failed to (read|open|use) [^:]*: ", "", text)
    text = re.sub(r"`[^`]*`", "`...`", text)
    text = re.sub(r"data/\S+", "...", text)
    return re.sub(r"\b\d[\d,.e+-]*\b", "N", text)[:140]


def judged(row: dict[str, Any]) -> tuple[str, str]:
    """The outcome of a task, and its reason."""
    if row["state"] in ("refused", "degenerate"):
        return "refused at opening", reason(row["reason"] or "")
    if row["result"] == "no verdict":
        return "opened", "the built-in policy writes no kernel for it"
    return "judged", str(row["result"])


def write(path: Path, head: list[str], rows: list[tuple[Any, ...]]) -> None:
    """One table."""
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(head)
        table.writerows(rows)


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--most-mib", type=float, default=4.0)
    parser.add_argument("--turns", default="2")
    parser.add_argument(
        "--run", type=Path, action="append", help="tabulate this run instead of a new one"
    )
    given = parser.parse_args()
    suite, runs = given.out / "definitions", given.run or [given.out / "run"]
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(given.folder.rglob("definition.json")):
        folder = path.parent
        called = json.loads(path.read_text())["name"]
        name = f"{folder.parent.name}-{folder.name}-{called}"[:120]
        if why := unread(folder):
            found[name] = ("not read", why)
        elif why := smallest(folder, suite, int(given.most_mib * 2**20), name):
            found[name] = ("read", why)
        else:
            found[name] = ("read", "not judged")
    if given.run is None:
        options = ["--device", given.device, "--max-turns", given.turns, "--out", str(runs[0])]
        subprocess.run(["warpwright", "eval", "--suite", str(suite), *options], check=False)
    rows = {}
    for run in runs:
        command = ["warpwright", "report", str(run), "--json"]
        told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        rows |= {row["task"]: row for row in json.loads(told.stdout)["rows"]}
    for name in found:
        if (
            found[name][1] == "not judged"
            and name in rows
            and rows[name]["state"] in ("refused", "degenerate", "judged")
        ):
            found[name] = judged(rows[name])
    table = [(name, outcome, why) for name, (outcome, why) in found.items()]
    write(given.out / "definitions.csv", ["definition", "outcome", "reason"], table)
    counts = Counter((outcome, why) for _, outcome, why in table).most_common()
    lines = [(outcome, why, count) for (outcome, why), count in counts]
    write(given.out / "definitions-outcomes.csv", ["outcome", "reason", "definitions"], lines)


if __name__ == "__main__":
    main()
