"""Final kernels of judged episodes and how fast they are, for the scripts beside this."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from records import read_json


def rows_of(files: list[str]) -> list[dict[str, Any]]:
    """Every judged episode in the files."""
    rows = []
    for file in files:
        rows += [row for row in read_json(file)["rows"] if row["state"] == "judged"]
    # Nothing was measured of what never got as far.
    measured = [row for row in rows if row["fingerprint"]]
    kinds = {(row["profile"], row["fingerprint"]["hardware"]) for row in measured}
    if len(kinds) > 1:
        sys.exit(f"these are of several profiles or cards, which are never mixed: {sorted(kinds)}")
    return rows


def ending(name: str, policies: Iterable[str]) -> str:
    """The one policy whose name ends so."""
    found = [policy for policy in policies if policy.endswith(name)]
    if len(found) != 1:
        sys.exit(f"{name} is {len(found)} of the policies {sorted(policies)}")
    return found[0]


def speed(row: dict[str, Any]) -> float | None:
    """The logarithm of a final kernel's speed-up over the best baseline, if it is right."""
    measured = row["measured"] if row["verified"] else None
    return math.log(measured["best"]["value"]) if measured and measured.get("best") else None


def kernels(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The mean of what was measured of each task's each final kernel."""
    measured: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if (value := speed(row)) is not None:
            measured[row["task"], row["candidate"]].append(value)
    return {kernel: float(np.mean(values)) for kernel, values in measured.items()}
