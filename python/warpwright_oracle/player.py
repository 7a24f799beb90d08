"""Runs timed windows of calls. Runner and baseline share this code, so that both are timed equally.

``go`` runs calls on staged inputs in the order given, waits for them, and returns the address of
every result. The judge keeps the time and freezes this process before it examines any result. It
sends no further request about the window. In a runner the candidate can replace all of this code,
and gains nothing by it.
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
from .arguments import are_named
from .tensors import flatten, place

Call = Callable[..., Any]


class Player:
    """State between requests."""

    as_they_are = True
    """Whether results must not be lazy conjugates or negatives of the values in memory."""

    def __init__(self, arena: Arena | None, cuda: bool) -> None:
        self.arena = arena
        self.cuda = cuda
        self.calls: dict[str, Call] = {}
        self.sets: list[list[Any]] = []
        self.results: list[Any] | deque[Any] = []
        self.pulse: torch.Tensor | None = None
        """On a GPU, a tensor whose fill wakes the device."""

    def turn(self, _: dict[str, Any]) -> dict[str, Any]:
        """Runs a small kernel on the GPU, so that the device does not switch between processes in
        the next window."""
        if self.pulse is not None:
            self.pulse.fill_(1.0)
            torch.cuda.synchronize()
        return {}

    def go(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs one call per entry of ``order``. Results stay alive until inputs are staged again.
        Garbage collection is disabled, since it would be timed in some windows only."""
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
        """Runs the calls and returns their results."""
        call = self.calls[which]
        sets, results = self.sets, []
        self.results = results
        with torch.no_grad():
            if are_named(sets):
                for index in order:
                    results.append(call(*sets[index], **sets[index].named))
                return results
            for index in order:
                results.append(call(*sets[index]))
        return results

    def pin(self, request: dict[str, Any]) -> dict[str, Any]:
        """Moves this process to the cores reserved for timed calls."""
        self._run_on(request["cores"])
        return {}

    def _run_on(self, cores: Iterable[int]) -> None:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), cores)

    def forget(self, _: dict[str, Any]) -> dict[str, Any]:
        """Releases the results; the staged inputs stay."""
        self.results = []
        return {}


def named(results: Sequence[Any], base: int, *, lazy: bool = False) -> dict[str, Any]:
    """The places of the results of all calls. ``forms``: trees and places without offsets.
    ``form``: the index into ``forms`` per call; empty if all calls have the first form. ``at``: the
    addresses of all tensors in order, as hexadecimal words, with ``base`` as the arena's start.
    ``lazy`` allows results that are conjugates or negatives of the values in memory. The timed
    window includes this call, which takes half a microsecond in the usual case of one tensor per
    call."""
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
    """Whether memory holds the conjugates or negatives of a tensor's values."""
    return tensor.is_conj() or tensor.is_neg()
