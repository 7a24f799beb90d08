"""The family that replaces a few slices: zero, constant, tiny, or far from zero.

The other families change every element by the same function. They make no row of zeros, and a
kernel that samples a few elements can identify the family. This family replaces one slice of each
kind, at random places in each tensor, and keeps the rest. Slices overlap only where there is no
room. A tensor of two values (mask, one-hot rows) gets one slice of each value and one of both. An
index tensor gets one slice of its smallest and one of its largest value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .distance import PIECE
from .families import STEEP, Labels, Traits, each_changed
from .tensors import dense

HIGH = 4 * STEEP
"""Largest magnitude in a high slice. A slice has few of the tensor's numbers, and its product with
a row of another input must still overflow an exponential."""
TINY, TINY_HALF = 2.0**-20, 2.0**-10
"""Factors of a tiny slice; the second is for float16, in which the first would underflow."""


@dataclass(frozen=True)
class Pair:
    """The two values of a tensor."""

    low: Any
    high: Any


def pair(tensor: torch.Tensor) -> Pair | None:
    """The values of a tensor with two possible values: flags, and all ones, which may be zeros in
    another sample."""
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


FORMS: list[Callable[[torch.Tensor], bool]] = [
    lambda part: torch.equal(part, part.mT),
    lambda part: not bool(part.tril(-1).any()),
    lambda part: not bool(part.triu(1).any()),
]
"""Symmetric, upper triangular and lower triangular matrices."""


def structured(tensor: torch.Tensor) -> bool:
    """Whether elements depend on each other, as in a symmetric or a triangular matrix."""
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] < 2:
        return False
    # A few matrices at a time: each question makes a copy of what it is about.
    forms = list(FORMS)
    for part in _matrices(tensor):
        forms = [form for form in forms if form(part)]
        if not forms:
            return False
    return True


def _matrices(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Parts of a tensor that have whole matrices, each as large as a piece if one matrix is not
    larger."""
    if tensor.dim() == 2 or tensor.numel() <= PIECE:
        yield tensor
    elif tensor.dim() == 3:
        yield from tensor.split(max(1, PIECE // tensor[0].numel()))
    else:
        for part in tensor:
            yield from _matrices(part)


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
"""Replacements for slices of quantities; ``low`` ranges from -256 to -128, ``high`` up to 512."""
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
"""Fills of quantities, and fills of two-valued tensors, that are tried together, in order, until
the task allows them. For example, a softmax over a fully masked row is usually NaN; over an
unmasked or partly masked row it is not."""


@dataclass
class Slices:
    """State of the family: the tensors that it changes, found on one set of inputs and fixed
    thereafter."""

    known: dict[int, Traits | Pair]
    way: int = 0
    """Index into ``WAYS``."""

    @staticmethod
    def of(tensors: list[torch.Tensor], traits: dict[int, Traits | Labels]) -> Slices:
        """Selects the tensors to change: quantities without structure, and tensors of two
        values."""
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
        """The ways that differ for these tensors, in the order in which they are tried."""
        pairs = any(isinstance(known, Pair) for known in self.known.values())
        quantities = any(isinstance(known, Traits) for known in self.known.values())
        found: dict[Any, int] = {}
        for way, (fills, values) in enumerate(WAYS):
            does = (fills if quantities else (), values if pairs else "")
            if does != ((), ""):
                found.setdefault(does, way)
        return list(found.values())

    def ties(self) -> bool:
        """Whether the way makes elements equal that were not."""
        quantities = any(isinstance(known, Traits) for known in self.known.values())
        return quantities and bool(EQUAL & set(WAYS[self.way][0]))

    def change(self, inputs: Any, seed: int) -> Any:
        """``inputs`` with such slices, determined by the seed."""
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
    """A function that fills a tensor with two values at random; each line gets both."""

    def fill(part: torch.Tensor) -> None:
        bits = torch.rand(part.shape, generator=random) < 0.5
        if part.dim() and part.shape[-1] > 1:
            first, second = torch.randperm(part.shape[-1], generator=random)[:2].tolist()
            bits[..., first], bits[..., second] = True, False
        part.masked_fill_(bits.to(part.device), known.high)
        part.masked_fill_(~bits.to(part.device), known.low)

    return fill


Place = tuple[int | slice, ...]
"""Index of a slice: the leading indices, or a range of a vector."""
TRIES = 16
"""Further random places for a slice that overlaps another. With two of four rows taken, all of them
overlap once in 65,000 cases."""


def a_slice(tensor: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """A part of a tensor at a random place: usually along the last dimension, else along several
    last dimensions. For a vector, a quarter."""
    return tensor[_place(tensor.shape, 4, random)]


def some_slices(tensor: torch.Tensor, count: int, random: torch.Generator) -> list[torch.Tensor]:
    """Parts of a tensor that overlap only where there is no room. For a vector, half in total."""
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
