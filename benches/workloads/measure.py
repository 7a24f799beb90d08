#!/usr/bin/env python3
"""What a candidate with five workloads costs, compared with one with one workload.

    python3 benches/workloads/measure.py [--device cuda:0] [--times 3] [--program warpwright]

Judges the candidate of this folder on `one.py` and on `five.py` beside it, each several times.
Prints a line of CSV per verdict: task, tier, seconds that it held the device (load, verify,
measure, end), and the width of the speed-up's interval (logarithm of high over low). The last
lines are the ratios of the medians.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
HELD = ("load", "verify", "measure", "end")


def judged(program: str, task: str, device: str) -> dict[str, Any]:
    """The verdict of the candidate on a task of this folder."""
    command = [program, "judge", str(HERE / f"{task}.py"), "--json", "--device", device]
    command += ["--candidate", str(HERE / "candidate")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    verdict = json.loads(done.stdout)["verdict"]
    if not verdict["verified"]:
        raise SystemExit(f"the candidate is not right: {verdict['failure']}")
    return verdict


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--device", default="cuda:0")
    given.add_argument("--times", type=int, default=3)
    given.add_argument("--program", default="warpwright")
    args = given.parse_args()
    held: dict[str, list[float]] = {}
    width: dict[str, list[float]] = {}
    print("task,tier,device seconds,width")
    for task in ("one", "five"):
        for _ in range(args.times):
            verdict = judged(args.program, task, args.device)
            best = verdict["speedup"]["best"]
            held.setdefault(task, []).append(sum(verdict["seconds"][each] for each in HELD))
            width.setdefault(task, []).append(math.log(best["high"] / best["low"]))
            print(
                f"{task},{verdict['tier']},{held[task][-1]:.3f},{width[task][-1]:.4f}", flush=True
            )
    for name, of in (("device seconds", held), ("width", width)):
        ratio = statistics.median(of["five"]) / statistics.median(of["one"])
        print(f"five over one: {name} {ratio:.2f}")


if __name__ == "__main__":
    main()
