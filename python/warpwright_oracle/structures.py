"""The families of inputs with structured rows, and of rows near the ends of a type's range.

In ``structures`` some rows have their largest numbers in one place or at one distance, sizes that
fall along the row, or a sorted beginning. Integers come in runs, of which few values have most, and
masks have rows of different lengths. Unlike ``clusters``, most rows stay as they are, so that a
kernel cannot tell the family from a few of them.

In ``ends`` some rows are far from zero, or close to it, by most of the range of exponents: there a
constant that stands for infinity or for zero is neither.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .families import Labels, Traits, each_changed
from .slices import Pair, pair, some_slices, structured
from .tensors import dense

LEAST = 8
"""Fewest elements per row that have a structure."""
MOST_ROWS = 64
"""Most rows that get one structure."""
PEAKS = 16
"""Numbers that a row has in one place."""
DISTANCES = (1, 1, 16, 32, 64, 128, 256, 512, 1024)
"""Distances between them; a random one of those that the row has room for."""
OCTAVES = 12
"""Binary orders of magnitude by which numbers differ along a row."""
RUN = 8
"""Mean length of a run of integers."""
KINDS = (("peaks", "uneven", "sorted"), ("peaks", "sorted"), ("uneven",), ("sorted",), ("peaks",))
"""Structures of quantities that are tried together, in order, until the task allows them."""
Rows = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def _peaks(rows: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """The largest numbers of each row at one distance from each other, the others in order."""
    size = rows.shape[-1]
    fitting = [each for each in DISTANCES if each * 2 <= size]
    result = torch.empty_like(rows)
    for i, which in enumerate(torch.randperm(len(fitting), generator=random).tolist()):
        part, made = rows[i :: len(fitting)], result[i :: len(fitting)]
        step = fitting[which]
        count = min(PEAKS, size // step)
        first = _below(size - (count - 1) * step, random)
        places = torch.zeros(size, dtype=torch.bool, device=rows.device)
        places[first : first + count * step : step] = True
        order = part.argsort(-1, descending=True)
        made[:, places] = part.gather(-1, order[:, :count])
        made[:, ~places] = part.gather(-1, order[:, count:].sort(-1).values)
    return result


def _uneven(rows: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Sizes that fall or rise along the rows by many orders of magnitude."""
    falling = torch.linspace(0, -OCTAVES, rows.shape[-1], device=rows.device).round().exp2()
    falls = _halves(rows, random)
    return rows * torch.where(falls, falling, falling.flip(-1)).to(rows.dtype)


def _sorted(rows: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Rows of which a first part is sorted, up to all of it."""
    size = rows.shape[-1]
    ends = size // 4 + torch.randint(size, (rows.shape[0], 1), generator=random).to(rows.device)
    begins = torch.arange(size, device=rows.device) < ends
    keys = torch.where(_halves(rows, random), rows, -rows).double()
    order = torch.where(begins, keys, math.inf).sort(dim=-1, stable=True).indices
    return rows.gather(-1, order)


def _halves(rows: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """True for every second row."""
    return ((torch.arange(rows.shape[0]) + _below(2, random)) % 2 == 0).to(rows.device)[:, None]


ROWS: dict[str, Rows] = {"peaks": _peaks, "uneven": _uneven, "sorted": _sorted}


@dataclass
class Structures:
    """State of the family: the tensors that it changes, found on one set of inputs and fixed
    thereafter."""

    known: dict[int, Traits | Labels | Pair]
    way: int = 0
    """Index into ``KINDS``; from the second on, masks stay as they are."""

    @staticmethod
    def of(tensors: list[torch.Tensor], traits: dict[int, Traits | Labels]) -> Structures:
        """Selects the tensors to change: quantities, integers that may occur more than once, and
        masks, unless elements depend on each other."""
        known: dict[int, Traits | Labels | Pair] = {}
        for i, given in enumerate(tensors):
            of_it, tensor = traits.get(i), dense(given)
            if tensor is None or structured(tensor) or not tensor.dim():
                continue
            if isinstance(of_it, Labels):
                if not of_it.distinct:
                    known[i] = of_it
            elif tensor.shape[-1] < LEAST:
                continue
            elif of_it is not None:
                known[i] = of_it
            elif tensor.dim() > 1 and (two := pair(tensor)) is not None:
                known[i] = two
        return Structures(known)

    def ways(self) -> list[int]:
        """The ways to try, in order."""
        quantities = any(isinstance(known, Traits) for known in self.known.values())
        masks = any(isinstance(known, Pair) for known in self.known.values())
        labels = any(isinstance(known, Labels) for known in self.known.values())
        return list(range(len(KINDS))) if quantities else [0, 1][: masks + labels]

    def ties(self) -> bool:
        """Whether elements become equal that were not: rows are rearranged, or scaled exactly."""
        return False

    def change(self, inputs: Any, seed: int) -> Any:
        """``inputs`` with such rows, determined by the seed."""
        return each_changed(inputs, seed, self.known, self._changed)

    def _changed(
        self, tensor: torch.Tensor, known: Traits | Labels | Pair, random: torch.Generator
    ) -> torch.Tensor:
        if isinstance(known, Labels):
            return _runs(tensor, random)
        result = torch.empty_like(tensor).copy_(tensor)
        rows = tensor.reshape(-1, tensor.shape[-1]).clone()
        if isinstance(known, Pair):
            if self.way == 0:
                _lengths(rows, known, random)
        else:
            kinds = KINDS[self.way]
            kinds = [kinds[i] for i in torch.randperm(len(kinds), generator=random)]
            count = min(MOST_ROWS, max(1, rows.shape[0] // (len(kinds) + 1)))
            order = torch.randperm(rows.shape[0], generator=random).to(rows.device)
            for kind, chosen in zip(kinds, order.split(count), strict=False):
                rows[chosen] = ROWS[kind](rows[chosen], random).to(rows.dtype)
        return result.copy_(rows.view(tensor.shape))


def _below(end: int, random: torch.Generator) -> int:
    return int(torch.randint(end, (), generator=random))


def _runs(tensor: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Runs of equal integers, of random length. Few of the values have most of the runs."""
    flat = tensor.reshape(-1)
    size = flat.numel()
    begins = torch.rand(size, generator=random) < 1 / RUN
    run = begins.cumsum(0)
    source = (size * torch.rand(int(run[-1]) + 1, generator=random) ** 4).long()
    made = flat[source[run].clamp_(max=size - 1).to(flat.device)]
    return torch.empty_like(tensor).copy_(made.view(tensor.shape))


def _lengths(rows: torch.Tensor, known: Pair, random: torch.Generator) -> None:
    """Makes each row one value up to a random length, and the other behind it; every second row
    begins with the lower one."""
    size = rows.shape[-1]
    lengths = torch.randint(1, size, (rows.shape[0], 1), generator=random).to(rows.device)
    before = torch.arange(size, device=rows.device) < lengths
    before ^= _halves(rows, random)
    rows.masked_fill_(before, known.high).masked_fill_(~before, known.low)


SHARES = ((0.3, ("low", "high", "tiny")), (0.3, ("high", "tiny")), (0.45, ("tiny",)))
"""Shares of the range of exponents, and fills, that are tried together, in order. Products of three
such numbers are still within the range, and none is below -1e20: honest programs differ in what
they multiply first, and in what they take for the lowest number."""
SENTINELS = re.compile(r"mask|where|\btri[lu]\b|\binf\b|finfo|1e[+]?\d", re.IGNORECASE)
"""Text of a module that may lower some numbers to one which counts as below all others. A program
may take another such number, so those of the inputs must not be lower."""


@dataclass
class Ends:
    """State of the family, as above."""

    known: dict[int, Traits]
    way: int = 0
    """Index into ``SHARES``."""

    @staticmethod
    def of(tensors: list[torch.Tensor], traits: dict[int, Traits | Labels], source: str) -> Ends:
        """Selects quantities whose elements do not depend on each other, unless the module with
        this source may have a lowest number of its own."""
        if SENTINELS.search(source):
            return Ends({})
        found = {i: each for i, each in traits.items() if isinstance(each, Traits)}
        return Ends({i: each for i, each in found.items() if not structured(tensors[i])})

    def ways(self) -> list[int]:
        """The ways to try, in order."""
        return list(range(len(SHARES))) if self.known else []

    def ties(self) -> bool:
        """Whether elements may become equal that were not: close to zero there are fewer bits."""
        return True

    def change(self, inputs: Any, seed: int) -> Any:
        """``inputs`` with such slices, determined by the seed."""
        return each_changed(inputs, seed, self.known, self._changed)

    def _changed(
        self, tensor: torch.Tensor, known: Traits, random: torch.Generator
    ) -> torch.Tensor:
        result = tensor.clone()
        share, fills = SHARES[self.way]
        exponent = math.log2(torch.finfo(tensor.dtype).max)
        far = 2.0 ** round(share * exponent)
        for fill, part in zip(fills, some_slices(result, len(fills), random), strict=True):
            unit = part.double() / known.largest
            if fill == "low":
                part.copy_(-far / 2 * (1 + unit.abs()))
            else:
                part.copy_(unit * (far if fill == "high" else 1 / far))
        return result
