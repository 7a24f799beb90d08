"""Draws reward.svg from updates.jsonl.xz: the mean reward of each arm, and the range over seeds."""

import json
import lzma
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
COLOURS = ["#0b6e4f", "#08a045", "#a23b72", "#e07a5f", "#1f4e8c", "#6c9bd2", "#555555"]
ARMS = [
    "pretrained-1",
    "pretrained-0.95",
    "ten-first-1",
    "ten-first-0.95",
    "none-1",
    "none-0.95",
    "rloo",
]

rewards = defaultdict(lambda: defaultdict(list))
with lzma.open(HERE / "updates.jsonl.xz", "rt") as lines:
    for update in map(json.loads, lines):
        rewards[update["arm"]][update["number"]].append(update["report"]["reward"])

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 380, 50, 20, 590, 340


def x(number: int) -> float:
    return LEFT + (RIGHT - LEFT) * number / 23


def y(reward: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * (reward + 0.5) / 3


svg = [
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
    ' font-family="sans-serif" font-size="12">'
]
svg.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
for tick in (-0.5, 0, 0.5, 1, 1.5, 2, 2.5):
    at = f"{y(tick):.1f}"
    svg.append(f'<line x1="{LEFT}" x2="{RIGHT}" y1="{at}" y2="{at}" stroke="#ddd"/>')
    svg.append(f'<text x="{LEFT - 8}" y="{at}" text-anchor="end">{tick}</text>')
for number in (0, 5, 11, 17, 23):
    at = f'x="{x(number):.1f}" y="{BOTTOM + 18}"'
    svg.append(f'<text {at} text-anchor="middle">{number + 1}</text>')
middle = f'x="{(LEFT + RIGHT) / 2}" y="{HEIGHT - 6}"'
svg.append(f'<text {middle} text-anchor="middle">update</text>')
for row, (arm, colour) in enumerate(zip(ARMS, COLOURS, strict=True)):
    steps = sorted(rewards[arm].items())
    mean = " ".join(f"{x(n):.1f},{y(sum(r) / len(r)):.1f}" for n, r in steps)
    low = [f"{x(n):.1f},{y(min(r)):.1f}" for n, r in steps]
    high = [f"{x(n):.1f},{y(max(r)):.1f}" for n, r in steps]
    band = " ".join(high + low[::-1])
    svg.append(f'<polygon points="{band}" fill="{colour}" opacity="0.08"/>')
    svg.append(f'<polyline points="{mean}" fill="none" stroke="{colour}" stroke-width="2"/>')
    at = f'x="{RIGHT + 16}" y="{TOP + 20 * row}"'
    svg.append(f'<rect {at} width="12" height="12" fill="{colour}"/>')
    svg.append(f'<text x="{RIGHT + 34}" y="{TOP + 20 * row + 11}">{arm}</text>')
svg.append("</svg>")
(HERE / "reward.svg").write_text("\n".join(svg) + "\n")
