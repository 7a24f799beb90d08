"""Times calls against each other, in alternating windows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

WINDOW_SECONDS = 0.02
"""Least length of a window."""
ROUNDS = (8, 30)
"""Least and most rounds."""
SECONDS = 3.0
"""Time after which no further round begins."""
QUANTILE = 1.96
"""Of the normal distribution, for ranks that bound the median with 95 %."""


def synchronise(device: str) -> None:
    """Waits for the GPU."""
    if device != "cpu":
        torch.cuda.synchronize()


def window(call: Callable[[], Any], count: int, device: str) -> float:
    """Seconds per call."""
    synchronise(device)
    began, done = time.perf_counter(), 0
    while done < count:
        call()
        done += 1
        if device == "cpu" and time.perf_counter() - began > 2 * WINDOW_SECONDS:
            break  # other processes took the cores
    synchronise(device)
    return (time.perf_counter() - began) / done


class Timed:
    """Seconds per call of several functions, in rounds of one window each."""

    def __init__(self, calls: dict[str, Callable[[], Any]], device: str) -> None:
        self.seconds: dict[str, list[float]] = {name: [] for name in calls}
        counts = {}
        for name, call in calls.items():
            call()
            once = window(call, 1, device)
            counts[name] = max(1, min(1000, math.ceil(WINDOW_SECONDS / max(once, 1e-6))))
        began, rounds = time.perf_counter(), 0
        while rounds < ROUNDS[0] or (rounds < ROUNDS[1] and time.perf_counter() - began < SECONDS):
            # The order turns, so that nobody always comes after the same one.
            names = list(calls)
            turn = rounds % len(names)
            for name in names[turn:] + names[:turn]:
                self.seconds[name].append(window(calls[name], counts[name], device))
            rounds += 1

    def milliseconds(self, name: str) -> dict[str, float]:
        """The median with its interval."""
        return interval([math.log(s * 1e3) for s in self.seconds[name]])

    def speedup(self, name: str, over: str) -> dict[str, float]:
        """How many times faster ``name`` is than ``over``, with its interval."""
        pairs = zip(self.seconds[over], self.seconds[name], strict=True)
        return interval([math.log(a / b) for a, b in pairs])


def interval(logarithms: list[float]) -> dict[str, float]:
    """The median with the interval of 95 % that ranks give. Other processes disturb single windows
    by any factor, so a mean would be about them."""
    ordered = sorted(logarithms)
    count = len(ordered)
    below = max(0, math.floor(count / 2 - QUANTILE * math.sqrt(count) / 2) - 1)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    ends = {"value": middle, "low": ordered[below], "high": ordered[count - 1 - below]}
    return {name: math.exp(end) for name, end in ends.items()}


def together(intervals: list[dict[str, float]]) -> dict[str, float]:
    """The geometric mean of independent figures."""
    count = len(intervals)
    mean = sum(math.log(i["value"]) for i in intervals) / count
    low = math.sqrt(sum(math.log(i["value"] / i["low"]) ** 2 for i in intervals)) / count
    high = math.sqrt(sum(math.log(i["high"] / i["value"]) ** 2 for i in intervals)) / count
    ends = {"value": mean, "low": mean - low, "high": mean + high}
    return {name: math.exp(end) for name, end in ends.items()}
