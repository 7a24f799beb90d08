"""The best verified kernel of each task over its best baseline, by shape: `room.py VERDICTS`."""

import json
import re
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

rows = [json.loads(line) for line in Path("configs/rows.jsonl").read_text().splitlines()]
code = {row["name"]: row["code"] for row in rows}
outcomes: Counter = Counter()
best: dict[str, list[float]] = defaultdict(list)
for line in Path(sys.argv[1]).read_text().splitlines():
    verdict = json.loads(line)["verdict"]
    outcomes[(verdict.get("failure") or {}).get("class", "verified")] += 1
    if verdict["verified"]:
        best[verdict["task"]].append(verdict["speedup"]["best"]["value"])
print(dict(outcomes))
shapes = defaultdict(list)
for task, speedups in sorted(best.items()):
    shape = "x".join(re.findall(r"^[A-Z_]+ = (\d+)$", code[task], re.MULTILINE)[:2])
    shapes[shape].append(max(speedups))
    print(f"{task:60} {shape} {max(speedups):.2f} of {len(speedups)}")
for shape, speedups in shapes.items():
    above = sum(speedup > 1.1 for speedup in speedups)
    print(shape, len(speedups), f"{statistics.median(speedups):.2f}", above)
