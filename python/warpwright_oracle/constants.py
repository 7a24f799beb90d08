"""Other values of inputs that are the same in every draw.

A mask of ones, a state of zeros, positions in order, a temperature: ``get_inputs()`` always gives
them, and a kernel that does not read them is right on all of its draws. ``forward`` takes them, so
that another value means something to it, as a rule: its answer decides (``calibration.py``). Here
they get other values, everywhere or in a single slice, so that no look at some elements finds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .families import INTEGERS, Labels, Traits, each_changed, ordered
from .slices import Pair, a_slice, pair
from .tensors import dense

FLIPPED = (1 / 4, 1 / 64)
"""Share of the elements of a mask that get its other value, by the way."""
SIZES = (1.0, 1 / 16)
"""Root mean square of a state that was zero, in units of that of the other inputs, by the way."""
MOST = 1 << 24
"""Elements of a tensor that may be changed everywhere: chance is drawn on the host."""
MOVED = 0.2
"""Standard deviation of the factor by which other numbers move."""


@dataclass(frozen=True)
class Ordered:
    """Values in order along a dimension: positions, bounds, offsets."""

    dim: int
    way: str = ""
    """How their order may be another: ``places``, each once, and ``gaps`` between them, of which
    none may be larger than those there are; else some are there more than once."""


@dataclass(frozen=True)
class Whole:
    """One whole number: lengths, counts, places. It may be less."""

    most: int


@dataclass(frozen=True)
class Zero:
    """Nothing but zeros."""

    size: float
    """Root mean square of what may be there instead."""


@dataclass(frozen=True)
class Number:
    """One value, or several that are neither of the above."""


Kind = Pair | Ordered | Whole | Zero | Number


@dataclass
class Constants:
    """What the family needs to know of the inputs that are the same in every draw."""

    known: dict[int, Kind]
    way: int = 0
    """Which way is used: 0 changes masks both ways, 1 less and only from low to high, 2 the
    other way round."""

    @staticmethod
    def of(
        tensors: list[torch.Tensor], same: list[bool], traits: dict[int, Traits | Labels]
    ) -> Constants:
        """Which of these tensors may have other values, where it is known which of them are the
        same in every draw. Those that other families change are not looked at."""
        sizes = [known.size for known in traits.values() if isinstance(known, Traits)]
        size = max(sizes, default=1.0)
        known: dict[int, Kind] = {}
        if all(same):
            return Constants(known)  # nothing varies: no other draw is wanted
        for i, (tensor, always) in enumerate(zip(tensors, same, strict=True)):
            if always and i not in traits and (kind := _kind(tensor, size)) is not None:
                known[i] = kind
        return Constants(known)

    def ways(self) -> list[int]:
        """Those to be tried, in order."""
        return [0, 1, 2] if self.known else []

    def ties(self) -> bool:
        """Whether elements are equal which were not: none of quantities."""
        return False

    def change(self, inputs: Any, seed: int) -> Any:
        """``inputs`` with other values, where a seed has them."""
        return each_changed(inputs, seed, self.known, self._changed)

    def _changed(self, tensor: torch.Tensor, kind: Kind, random: torch.Generator) -> torch.Tensor:
        result = tensor.clone()
        whole = bool(torch.rand((), generator=random) < 0.5) and result.numel() <= MOST
        whole = whole or isinstance(kind, Ordered)
        ones = isinstance(kind, Pair) and bool((result == kind.high).all())
        self._fill(result if whole else a_slice(result, random), kind, ones, random)
        return result

    def _fill(self, part: torch.Tensor, kind: Kind, ones: bool, random: torch.Generator) -> None:
        less = min(self.way, 1)
        if isinstance(kind, Pair):
            flips = (torch.rand(part.shape, generator=random) < FLIPPED[less]).to(part.device)
            low, high = part == kind.low, part == kind.high
            if self.way != 2:
                part.masked_fill_(flips & low, kind.high)
            if self.way != 1 or ones:
                part.masked_fill_(flips & high, kind.low)
        elif isinstance(kind, Ordered):
            part.copy_(_otherwise(part, kind, random))
        elif isinstance(kind, Whole):
            least = kind.most - kind.most // 2
            part.copy_(torch.randint(least, kind.most + 1, part.shape, generator=random))
        else:
            noise = torch.randn(part.shape, generator=random).to(part)
            if isinstance(kind, Zero):
                part.copy_(noise * (kind.size * SIZES[less]))
            else:
                part.mul_(1 + MOVED * noise)


def _otherwise(part: torch.Tensor, kind: Ordered, random: torch.Generator) -> torch.Tensor:
    """Values in order, otherwise."""
    count = part.shape[kind.dim]
    if kind.way == "places":
        order = torch.randperm(count, generator=random).to(part.device)
        return part.index_select(kind.dim, order)
    if kind.way == "gaps":
        order = torch.randperm(count - 1, generator=random).to(part.device)
        gaps = part.diff(dim=kind.dim).index_select(kind.dim, order).cumsum(kind.dim)
        first = part.narrow(kind.dim, 0, 1)
        return torch.cat([first, first + gaps.to(part.dtype)], kind.dim)
    return part.index_select(kind.dim, _again(count, random, part))


def _again(count: int, random: torch.Generator, like: torch.Tensor) -> torch.Tensor:
    """Places of so many values, in order, some more than once, from the first to the last."""
    places = torch.randint(count, (count,), generator=random).sort().values
    places[0], places[-1] = 0, count - 1
    return places.to(like.device)


def _kind(given: torch.Tensor, size: float) -> Kind | None:
    """What a tensor that is the same in every draw is like; None where nothing else is known to be
    meant: 0 and 1, and others than floating ones without an order."""
    if (tensor := dense(given)) is None or not tensor.numel() or tensor.is_complex():
        return None
    if tensor.is_floating_point() and tensor.element_size() == 1:
        return None
    if (two := pair(tensor)) is not None:
        return two
    for dim in range(tensor.dim()):
        if tensor.shape[dim] > 2 and tensor.dtype != torch.bool and ordered(tensor, dim):
            same_along = torch.equal(tensor, tensor.narrow(dim, 0, 1).expand_as(tensor))
            if not same_along:
                return _ordered(tensor, dim)
    if tensor.dtype in INTEGERS:
        low, high = (bound.item() for bound in torch.aminmax(tensor))
        return Whole(int(high)) if 1 < low == high else None
    if not tensor.is_floating_point():
        return None
    if not bool(tensor.any()):
        return Zero(size)
    finite = torch.isfinite(tensor)
    # A bias with places that are masked; what is not a number stays so.
    return Number() if bool((finite & (tensor != 0)).any()) else None


def _ordered(tensor: torch.Tensor, dim: int) -> Ordered | None:
    if tensor.dtype not in INTEGERS:
        return Ordered(dim)
    low, high = (bound.item() for bound in torch.aminmax(tensor.diff(dim=dim)))
    if low <= 0 <= high:
        return Ordered(dim)  # some are there more than once: segments
    if low == high:
        # Positions in another order; equal lengths have no other.
        return Ordered(dim, "places") if abs(low) == 1 else None
    return Ordered(dim, "gaps")
