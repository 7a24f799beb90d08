"""Plays staged calls: what runner and baseline have in common, so that both are timed alike.

``stage`` makes views of the inputs (untimed), ``go`` runs calls in the order given and waits for
them, ``outputs`` says where results lie, ``release`` forgets them. The judge keeps the time
between sending ``go`` and its own look at the memory.
"""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .arena import Arena
from .tensors import flatten

Call = Callable[..., Any]


class Player:
    """State between requests."""

    def __init__(self, arena: Arena | None, cuda: bool) -> None:
        self.arena = arena
        self.cuda = cuda
        self.calls: dict[str, Call] = {}
        self.sets: list[list[Any]] = []
        self.results: list[Any] | deque[Any] = []
        self.pulse: torch.Tensor | None = None
        """On a GPU, a number to compute with."""

    def turn(self, _: dict[str, Any]) -> dict[str, Any]:
        """Has a GPU work for this process, so that it does not change hands within the window that
        is to begin."""
        if self.pulse is not None:
            self.pulse.fill_(1.0)
            torch.cuda.synchronize()
        return {}

    def go(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs one call per entry of ``order``; results stay alive until ``release``. Garbage
        waits: collecting it would be timed in some windows and not in others."""
        gc.disable()
        try:
            self._run(request["which"], request["order"])
            if self.cuda:
                torch.cuda.synchronize()
        finally:
            gc.enable()
        return {}

    def _run(self, which: str, order: list[int]) -> None:
        call = self.calls[which]
        sets, results = self.sets, self.results
        with torch.no_grad():
            for index in order:
                results.append(call(*sets[index]))

    def pin(self, request: dict[str, Any]) -> dict[str, Any]:
        """Moves this process to the cores that are kept for what is timed."""
        self._run_on(request["cores"])
        return {}

    def _run_on(self, cores: Iterable[int]) -> None:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), cores)

    def outputs(self, request: dict[str, Any]) -> dict[str, Any]:
        """Where the results of the named calls lie."""
        given = []
        for index in request["calls"]:
            tensors: list[torch.Tensor] = []
            tree = flatten(self.results[index], tensors)
            assert self.arena is not None
            given.append({"tree": tree, "tensors": [self.arena.place(t) for t in tensors]})
        return {"outputs": given}

    def forget(self, _: dict[str, Any]) -> dict[str, Any]:
        """Forgets results; the staged inputs stay."""
        self.results = []
        return {}

    def release(self, _: dict[str, Any]) -> dict[str, Any]:
        """Forgets results and staged inputs."""
        self.results = []
        self.sets = []
        return {}
