"""How fast the kernels of the last fifth of the updates are, by arm: a geometric mean over all
that are right. From the repository's root:
`python3 docs/measurements/2026-11-26-cpu-reward/speeds.py OUT`.
"""

import json
import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, "scripts")

from records import events

ARMS, SEEDS, LAST = ("bounded", "paper", "speedup"), range(1, 6), 320
STUDENT = 2.776  # 95 %, four degrees of freedom


def logarithm(record: Path) -> float:
    """Mean logarithm of the speed-up over eager."""
    lines = [json.loads(line)["event"] for line in events(record).splitlines()]
    ended = [event for event in lines if event["type"] == "episode_finished"]
    ended = sorted(ended, key=lambda event: event["episode"])[-LAST:]
    verdicts = [event["final_verdict"] for event in ended if event.get("final_verdict")]
    right = [verdict for verdict in verdicts if verdict["verified"]]
    return statistics.mean(math.log(verdict["speedup"]["eager"]["value"]) for verdict in right)


def told(values: list[float]) -> str:
    """Mean and interval, of logarithms as factors."""
    mean = statistics.mean(values)
    half = STUDENT * statistics.stdev(values) / len(values) ** 0.5
    low, value, high = (math.exp(x) for x in (mean - half, mean, mean + half))
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


found = {
    arm: [logarithm(Path(sys.argv[1]) / f"arms/{arm}/seed-{seed}/ppo/record") for seed in SEEDS]
    for arm in ARMS
}
for arm in ARMS:
    over = [a - b for a, b in zip(found[arm], found["bounded"], strict=True)]
    beside = "" if arm == "bounded" else f", beside bounded {told(over)}"
    print(f"{arm}: {told(found[arm])}{beside}")
