"""The family that changes inputs with equal values in all samples.

``get_inputs()`` always returns the same mask of ones, state of zeros, positions or temperature. A
kernel that does not read them passes on all samples. ``forward`` takes them, so another value
usually has a meaning; the reference's result decides (``calibration.py``). This family changes
them, everywhere or in a single slice, so that a kernel that samples some elements cannot notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .families import INTEGERS, Labels, Traits, each_changed, ordered
from .slices import Pair, a_slice, pair
from .tensors import dense

FLIPPED = (1 / 4, 1 / 64)
"""Share of the elements of a mask that flip, by way."""
SIZES = (1.0, 1 / 16)
"""Root mean square of a state that was zero, in units of that of the other inputs, by way."""
MOST = 1 << 24
"""Largest tensor, in elements, that is changed everywhere: the host samples the random numbers."""
MOVED = 0.2
"""Standard deviation of the random factor applied to other numbers."""


@dataclass(frozen=True)
class Ordered:
    """Sorted values along a dimension: positions, bounds, offsets."""

    dim: int
    way: str = ""
    """How to rearrange them. ``places``: permutes the values. ``gaps``: permutes the differences,
    so that none exceeds the existing ones. Empty: repeats some values."""


@dataclass(frozen=True)
class Whole:
    """One whole number: lengths, counts, indices. It may become smaller."""

    most: int


@dataclass(frozen=True)
class Zero:
    """All zeros."""

    size: float
    """Root mean square of the replacement values."""


@dataclass(frozen=True)
class Number:
    """Other floating values."""


Kind = Pair | Ordered | Whole | Zero | Number


@dataclass
class Constants:
    """State of the family: the inputs that are equal in all samples."""

    known: dict[int, Kind]
    way: int = 0
    """The way in use. 0 flips masks in both directions; 1 flips fewer elements, from low to high
    only; 2 flips fewer, from high to low only."""

    @staticmethod
    def of(
        tensors: list[torch.Tensor], same: list[bool], traits: dict[int, Traits | Labels]
    ) -> Constants:
        """Selects the tensors that may get other values, if it is known which are equal in all
        samples. Skips those that other families change."""
        sizes = [known.size for known in traits.values() if isinstance(known, Traits)]
        size = max(sizes, default=1.0)
        known: dict[int, Kind] = {}
        if all(same):
            return Constants(known)  # nothing varies, so the task needs no other inputs
        for i, (tensor, always) in enumerate(zip(tensors, same, strict=True)):
            if always and i not in traits and (kind := _kind(tensor, size)) is not None:
                known[i] = kind
        return Constants(known)

    def ways(self) -> list[int]:
        """The ways to try, in order."""
        return [0, 1, 2] if self.known else []

    def ties(self) -> bool:
        """Whether quantities become equal that were not: none do."""
        return False

    def change(self, inputs: Any, seed: int) -> Any:
        """``inputs`` with other values, determined by the seed."""
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
    """The sorted values, rearranged."""
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
    """``count`` sorted indices with repetitions, including the first and the last."""
    places = torch.randint(count, (count,), generator=random).sort().values
    places[0], places[-1] = 0, count - 1
    return places.to(like.device)


def _kind(given: torch.Tensor, size: float) -> Kind | None:
    """The kind of a tensor that is equal in all samples. None where another value may be invalid,
    such as unsorted integers, unless all have one value above 1."""
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
    # A bias with masked places. Infinities and NaN stay, since they are multiplied.
    return Number() if bool((finite & (tensor != 0)).any()) else None


def _ordered(tensor: torch.Tensor, dim: int) -> Ordered | None:
    if tensor.dtype not in INTEGERS:
        return Ordered(dim)
    low, high = (bound.item() for bound in torch.aminmax(tensor.diff(dim=dim)))
    if low <= 0 <= high:
        return Ordered(dim)  # repeated values: segment ids
    if low == high:
        # Positions can be permuted; equal lengths cannot.
        return Ordered(dim, "places") if abs(low) == 1 else None
    return Ordered(dim, "gaps")
