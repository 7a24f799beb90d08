"""Final kernels of judged episodes and their speed-ups, for other scripts."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from records import read_json


def rows_of(files: list[str]) -> list[dict[str, Any]]:
    """The judged episodes in the files."""
    rows = []
    for file in files:
        rows += [row for row in read_json(file)["rows"] if row["state"] == "judged"]
    # An episode without a measured candidate has no fingerprint.
    measured = [row for row in rows if row["fingerprint"]]
    kinds = {(row["profile"], row["fingerprint"]["hardware"]) for row in measured}
    if len(kinds) > 1:
        sys.exit(f"the files have several profiles or kinds of hardware: {sorted(kinds)}")
    return rows


def ending(name: str, policies: Iterable[str]) -> str:
    """The one policy whose name ends with `name`."""
    found = [policy for policy in policies if policy.endswith(name)]
    if len(found) != 1:
        sys.exit(f"{name} matches {len(found)} of the policies {sorted(policies)}, not one")
    return found[0]


def speed(row: dict[str, Any]) -> float | None:
    """The log-speed-up of a verified final kernel over the best baseline, else None."""
    measured = row["measured"] if row["verified"] else None
    return math.log(measured["best"]["value"]) if measured and measured.get("best") else None


def kernels(rows: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The mean log-speed-up of each final kernel of each task."""
    measured: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if (value := speed(row)) is not None:
            measured[row["task"], row["candidate"]].append(value)
    return {kernel: float(np.mean(values)) for kernel, values in measured.items()}
