"""Inputs of which a few slices are something else: zero, constant, tiny, far from zero.

The other families change every element by the same function. They make no row of zeros, and a
kernel that samples a few elements can tell which family it was given. This family replaces one
slice of each kind, at random places in each tensor, and keeps the rest. Slices overlap only where
there is no room. A tensor of two values (mask, one-hot rows) gets one slice of each value and one
of both. An index tensor gets one slice of its smallest and one of its largest value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .families import STEEP, Labels, Traits, each_changed
from .tensors import dense

HIGH = 4 * STEEP
"""Most that a high slice may have: few of the tensor's numbers are in it, and a product of it with
a row of another input must still overflow an exponential."""
TINY, TINY_HALF = 2.0**-20, 2.0**-10
"""What a tiny slice is multiplied by; the second in float16, where the first leaves nothing."""


@dataclass(frozen=True)
class Pair:
    """The two values that a tensor has."""

    low: Any
    high: Any


def pair(tensor: torch.Tensor) -> Pair | None:
    """The values of a tensor that has two, or may: flags, and ones that some draw has zeros
    beside."""
    if tensor.dtype == torch.bool:
        return Pair(False, True) if tensor.numel() else None
    if tensor.is_complex() or tensor.numel() < 2:
        return None
    if tensor.is_floating_point() and tensor.element_size() == 1:
        return None
    low, high = (bound.item() for bound in torch.aminmax(tensor))
    if low == high == 1:
        return Pair(0, 1)
    if low == high or not bool(((tensor == low) | (tensor == high)).all()):
        return None
    return Pair(low, high) if tensor.is_floating_point() or (low, high) == (0, 1) else None


def structured(tensor: torch.Tensor) -> bool:
    """Whether elements depend on each other, as those of a symmetric or a triangular matrix do."""
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] < 2:
        return False
    return (
        torch.equal(tensor, tensor.mT)
        or not bool(tensor.tril(-1).any())
        or not bool(tensor.triu(1).any())
    )


Fill = Callable[[torch.Tensor, Traits], Any]


def _low(part: torch.Tensor, traits: Traits) -> None:
    part.copy_(-part.double().abs() * (STEEP / traits.largest) - STEEP)


def _high(part: torch.Tensor, traits: Traits) -> None:
    part.copy_(part.double() * (HIGH / traits.largest))


def _tiny(part: torch.Tensor, _: Traits) -> None:
    part.mul_(TINY_HALF if part.dtype == torch.float16 else TINY)


FILLS: dict[str, Fill] = {
    "zero": lambda part, _: part.zero_(),
    "constant": lambda part, _: part.fill_(part[(0,) * part.dim()].item()),
    "tiny": _tiny,
    "low": _low,
    "high": _high,
}
"""What slices of quantities are made; ``low`` is from twice -128 to -128, ``high`` up to 512."""
EQUAL = {"zero", "constant"}
"""Fills that make all elements of a slice equal."""
ALL = tuple(FILLS)
WAYS: tuple[tuple[tuple[str, ...], str], ...] = (
    (ALL, "both"),
    (ALL, "high, mixed"),
    (ALL, "low, mixed"),
    (ALL, "mixed"),
    (ALL, ""),
    (("tiny", "low", "high"), "both"),
    (("tiny", "low", "high"), "mixed"),
    (("tiny", "low", "high"), ""),
    (("zero", "constant", "tiny", "high"), ""),
    (("constant", "tiny"), ""),
    (("tiny",), ""),
)
"""The fills and the values of two that are tried together, in order, until a task allows them. A
softmax over a fully masked row, for example, is usually NaN; over an unmasked row, or one in which
every other place is masked, it is not."""


@dataclass
class Slices:
    """What the family needs to know of the inputs, from one draw and the same ever after."""

    known: dict[int, Traits | Pair]
    way: int = 0
    """Which of ``WAYS`` is used."""

    @staticmethod
    def of(tensors: list[torch.Tensor], traits: dict[int, Traits | Labels]) -> Slices:
        """Which of these tensors may have such slices: quantities that no structure binds, and
        tensors of two values."""
        known: dict[int, Traits | Pair] = {}
        for i, given in enumerate(tensors):
            quantity, tensor = traits.get(i), dense(given)
            if tensor is None:
                continue
            if isinstance(quantity, Traits):
                if not structured(tensor):
                    known[i] = quantity
            elif isinstance(quantity, Labels):
                if not quantity.distinct and not structured(tensor):
                    known[i] = Pair(quantity.values[0].item(), quantity.values[-1].item())
            elif quantity is None and (two := pair(tensor)) is not None and not structured(tensor):
                known[i] = two
        return Slices(known)

    def ways(self) -> list[int]:
        """Those that differ for these tensors, in the order in which they are to be tried."""
        pairs = any(isinstance(known, Pair) for known in self.known.values())
        quantities = any(isinstance(known, Traits) for known in self.known.values())
        found: dict[Any, int] = {}
        for way, (fills, values) in enumerate(WAYS):
            does = (fills if quantities else (), values if pairs else "")
            if does != ((), ""):
                found.setdefault(does, way)
        return list(found.values())

    def ties(self) -> bool:
        """Whether elements are equal which were not."""
        quantities = any(isinstance(known, Traits) for known in self.known.values())
        return quantities and bool(EQUAL & set(WAYS[self.way][0]))

    def change(self, inputs: Any, seed: int) -> Any:
        """``inputs`` with such slices, where a seed has them."""
        return each_changed(inputs, seed, self.known, self._changed)

    def _changed(
        self, tensor: torch.Tensor, known: Traits | Pair, random: torch.Generator
    ) -> torch.Tensor:
        result = tensor.clone()
        names, values = WAYS[self.way]
        if isinstance(known, Traits):
            fills = [lambda t, fill=FILLS[name]: fill(t, known) for name in names]
        else:
            both = [lambda t: t.fill_(known.low), lambda t: t.fill_(known.high)]
            mixed = two_values(known, random)
            fills = {
                "both": [*both, mixed],
                "high, mixed": [both[1], mixed],
                "low, mixed": [both[0], mixed],
                "mixed": [mixed],
            }.get(values, [])
        for fill, part in zip(fills, some_slices(result, len(fills), random), strict=True):
            fill(part)
        return result


def two_values(known: Pair, random: torch.Generator) -> Callable[[torch.Tensor], Any]:
    """Fills a tensor with two values at random, of which each line has both."""

    def fill(part: torch.Tensor) -> None:
        bits = torch.rand(part.shape, generator=random) < 0.5
        if part.dim() and part.shape[-1] > 1:
            first, second = torch.randperm(part.shape[-1], generator=random)[:2].tolist()
            bits[..., first], bits[..., second] = True, False
        part.masked_fill_(bits.to(part.device), known.high)
        part.masked_fill_(~bits.to(part.device), known.low)

    return fill


Place = tuple[int | slice, ...]
"""What a slice is indexed with: the first places, or a range of a vector."""
TRIES = 16
"""How many further places are drawn for a slice that overlaps another. With two of four rows taken,
all of them overlap once in 65,000 times."""


def a_slice(tensor: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """A part of a tensor at a random place: as a rule along the last dimension, else along more of
    the last ones; of a vector a quarter."""
    return tensor[_place(tensor.shape, 4, random)]


def some_slices(tensor: torch.Tensor, count: int, random: torch.Generator) -> list[torch.Tensor]:
    """Parts of a tensor that overlap only where there is no room; of a vector, half in all."""
    places: list[Place] = []
    for _ in range(count):
        place = _place(tensor.shape, 2 * count, random)
        for _ in range(TRIES):
            if not any(_overlap(place, other) for other in places):
                break
            place = _place(tensor.shape, 2 * count, random)
        places.append(place)
    return [tensor[place] for place in places]


def _place(shape: torch.Size, share: int, random: torch.Generator) -> Place:
    def draw(below: int) -> int:
        return int(torch.randint(below, (), generator=random))

    if not shape:
        return ()
    if len(shape) == 1:
        count = max(1, shape[0] // share)
        start = draw(shape[0] - count + 1)
        return (slice(start, start + count),)
    kept = 1 if draw(4) else 1 + draw(len(shape) - 1)
    return tuple(draw(size) for size in shape[: len(shape) - kept])


def _overlap(one: Place, other: Place) -> bool:
    """Whether two slices of a tensor have elements in common."""
    pairs = zip(one, other, strict=False)
    return all(
        a.start < b.stop and b.start < a.stop
        if isinstance(a, slice) and isinstance(b, slice)
        else a == b
        for a, b in pairs
    )
