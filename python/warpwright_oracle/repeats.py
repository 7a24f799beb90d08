"""Checks whether a reference returns the same results again. A random reference has no correct
result."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .channel import Refusal
from .distance import largest, pieces
from .plain import plain
from .reference import seed_everything

SAME = 1e-5
"""Relative difference of results above which the computation differs, not only the order of a
sum."""
ONCE_MORE = 3
"""Further pairs of calls that must repeat the first pair's results bit for bit, for its two seeds.
Atomics on a GPU give one of several results; they seldom repeat both for each seed this often."""


@dataclass(frozen=True)
class Given:
    """The results of a call."""

    tree: Any
    tensors: list[torch.Tensor]

    def same(self, other: Given) -> bool:
        """Bit for bit equal; all NaNs count as equal."""
        pairs = zip(self.tensors, other.tensors, strict=True)
        return self.tree == other.tree and all(a.shape == b.shape and same(a, b) for a, b in pairs)

    def alike(self, other: Given, slack: float = 1e-3) -> bool:
        """Equal up to the order of sums."""
        pairs = zip(self.tensors, other.tensors, strict=True)
        return self.tree == other.tree and all(alike(a, b, slack) for a, b in pairs)


def must_repeat(first: Given, call: Callable[[int], Given]) -> bool:
    """Refuses a reference whose results differ in a second call with the same inputs, or that seeds
    the random number generators itself, since a candidate's numbers would differ. ``first`` has the
    results of the last call, with seed 1; ``call`` makes another with equal inputs and the given
    seed. Returns whether it samples random numbers. They changed no result here, but on other
    inputs they may (``noisy``)."""
    after = _generators()
    seed_everything(2)
    fresh = _generators()
    second = call(2)
    later = _generators()
    if not first.alike(second):
        text = "two calls with equal inputs gave different outputs"
        if second.alike(call(2)):
            text += ": it is random"
        else:
            text += ", also with equal seeds: it keeps a state from call to call"
        raise Refusal("stochastic", text)
    if any(a == b for a, b in zip(after, later, strict=True)):
        text = "forward seeds the random generators, so a candidate's random numbers would differ"
        raise Refusal("stochastic", text)
    draws = later != fresh
    if draws and noisy(call, first, second):
        text = (
            "two calls with equal inputs gave slightly different outputs, each the same again with "
            "an equal seed: it is random"
        )
        raise Refusal("stochastic", text)
    return draws


def noisy(call: Callable[[int], Given], first: Given, second: Given) -> bool:
    """Whether the results of a reference that samples random numbers depend on them, however
    little. ``first`` and ``second`` are its results for seeds 1 and 2 and equal inputs."""
    if first.same(second):
        return False
    return all(first.same(call(1)) and second.same(call(2)) for _ in range(ONCE_MORE))


def _generators() -> list[Any]:
    """The states of all generators that ``seed_everything`` seeds."""
    states: list[Any] = [random.getstate(), _bytes(torch.default_generator.get_state())]
    if torch.cuda.is_initialized():
        states.append(_bytes(torch.cuda.get_rng_state()))
    with contextlib.suppress(ImportError):
        import numpy

        name, keys, *others = numpy.random.get_state()
        states.append((name, keys.tobytes(), *others))
    return states


def _bytes(state: torch.Tensor) -> bytes:
    return bytes(state.tolist())


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal, where NaN equals NaN."""
    a, b = plain(a), plain(b)
    return all(
        torch.equal(x, y) or bool(torch.all((x == y) | ((x != x) & (y != y))))
        for x, y in pieces(a, b)
    )


def alike(a: torch.Tensor, b: torch.Tensor, slack: float = 1e-3) -> bool:
    """Equal up to the order of a sum: atomics on a GPU may reorder it."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = plain(a), plain(b)
    if not a.is_floating_point():
        return same(a, b)
    if not a.numel():
        return True
    absolute = slack * largest(a) + 1e-12
    return all(
        torch.allclose(x.double(), y.double(), rtol=slack, atol=absolute, equal_nan=True)
        for x, y in pieces(a, b)
    )
