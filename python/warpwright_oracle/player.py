"""Plays windows of calls: what runner and baseline have in common, so that both are timed alike.

``go`` runs calls on staged inputs in the order given, waits for them and names where every result
lies. The judge keeps the time, freezes this process before it looks at anything, and asks nothing
more about the window: in a runner all of this is the candidate's to replace, and gains it nothing.
"""

from __future__ import annotations

import gc
import os
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .arena import Arena
from .tensors import flatten, place

Call = Callable[..., Any]


class Player:
    """State between requests."""

    as_they_are = True
    """Whether results must not be conjugates or negatives of what memory holds."""

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
        """Runs one call per entry of ``order``; results stay alive until inputs are staged again.
        Garbage waits: collecting it would be timed in some windows and not in others."""
        gc.disable()
        try:
            given = self._run(request["which"], request["order"])
            if self.cuda:
                torch.cuda.synchronize()
            base = self.arena.base if self.arena is not None else 0
            return named(given, base) if self.as_they_are else named(given, base, lazy=True)
        finally:
            gc.enable()

    def _run(self, which: str, order: list[int]) -> Sequence[Any]:
        """Runs the calls; what each of them returned."""
        call = self.calls[which]
        sets, results = self.sets, []
        self.results = results
        with torch.no_grad():
            for index in order:
                results.append(call(*sets[index]))
        return results

    def pin(self, request: dict[str, Any]) -> dict[str, Any]:
        """Moves this process to the cores that are kept for what is timed."""
        self._run_on(request["cores"])
        return {}

    def _run_on(self, cores: Iterable[int]) -> None:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), cores)

    def forget(self, _: dict[str, Any]) -> dict[str, Any]:
        """Forgets results; the staged inputs stay."""
        self.results = []
        return {}


def named(results: Sequence[Any], base: int, *, lazy: bool = False) -> dict[str, Any]:
    """Where the results of all calls lie: ``forms`` (trees and places without offsets), ``form``
    (which of these each call has; nothing if all have the first), and ``at``, the addresses of all
    tensors in order as hexadecimal words, for which ``base`` is the arena's start. ``lazy`` results
    may be conjugates or negatives of what lies there. One tensor per call, the usual, takes half a
    microsecond: it is inside the window."""
    first = results[0] if results else None
    if type(first) is torch.Tensor and not _lazy(first):
        tensor, shape, stride, dtype = torch.Tensor, first.shape, first.stride(), first.dtype
        if all(
            type(r) is tensor and r.shape == shape and r.dtype is dtype and r.stride() == stride
            for r in results
        ):
            form = {"tree": {"tensor": 0}, "tensors": [place(first, None)]}
            at = array("Q", [r.data_ptr() for r in results])
            return {"forms": [form], "form": [], "base": base, "at": at.tobytes().hex()}
    forms: list[dict[str, Any]] = []
    known: dict[str, int] = {}
    which = []
    at = array("Q")
    for result in results:
        tensors: list[torch.Tensor] = []
        form = {"tree": flatten(result, tensors), "tensors": [place(t, None) for t in tensors]}
        if not lazy and any(map(_lazy, tensors)):
            raise TypeError(
                "an output is a conjugated or negated view (is_conj, is_neg) of memory that holds "
                "other values: have a kernel write the values"
            )
        key = repr(form)
        if key not in known:
            known[key] = len(forms)
            forms.append(form)
        which.append(known[key])
        at.extend(t.data_ptr() for t in tensors)
    return {"forms": forms, "form": which, "base": base, "at": at.tobytes().hex()}


def _lazy(tensor: torch.Tensor) -> bool:
    """Whether memory does not hold a tensor's values, but their conjugates or negatives."""
    return tensor.is_conj() or tensor.is_neg()
