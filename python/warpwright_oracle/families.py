"""Families of inputs: other inputs than those of ``get_inputs()``, made from them.

Each family here is a function of an element's value, the same for all elements. Equal elements stay
equal and zeros stay zero, so that symmetric, triangular, sparse and repeated inputs keep their
structure. Randomness is a hash of the value and a seed. Shape, dtype and strides are kept. Families
leave booleans and plain values unchanged, and floating tensors that are not quantities
(``changeable``). They exchange integers for others from the task's own sample (``Labels``), so that
indices stay in range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from .distance import pieces, slabs
from .plain import UNSIGNED, restored, workable
from .tensors import dense, flatten, laid_out, unflatten

OWN, NORMAL, FAINTLY = "own", "normal", "faint"
GPU_PIECE, HOST_PIECE = 1 << 24, 1 << 17
"""Elements of a large tensor that are changed together; on the host, as many as fit its caches."""
EQUAL_SUMS = 1e-5
"""Relative spread below which float32 sums along a dimension count as equal. Probabilities of up to
some thousand terms stay below it."""
BY_CHANCE = 0.05
"""The same as a share of the spread that sums of independent values with this mean and spread would
have. Sums with a larger spread are not meant to be equal. Half-precision probabilities stay below
it."""
ROUNDINGS = 8
"""Allowed error of a sum of probabilities in a short format: this many units in the last place of a
term, divided by the root of the number of terms."""


@dataclass(frozen=True)
class Traits:
    """Statistics of a tensor for the families, from one sample of inputs and fixed thereafter."""

    spread: float
    """Standard deviation."""
    size: float
    """Root mean square."""
    signed: bool
    """Whether it has values of both signs."""
    largest: float = 1.0
    """Largest magnitude."""
    least: float = 0.0
    """Least random number among the elements of the tensor being changed."""


@dataclass(frozen=True)
class Labels:
    """Values of an integer tensor in the task's own samples."""

    values: torch.Tensor
    """Sorted and unique."""
    distinct: bool = False
    """Whether no sample repeats a value, at least within a row: places to write to, chosen experts.
    Two writes to one place have no order."""
    size: float = 0.0
    """Always 0, so that the examiner inserts a zero only where the tensor has one already."""

    def beside(self, tensor: torch.Tensor) -> Labels:
        """These labels extended by another sample."""
        tensor = workable(tensor)
        values = torch.unique(tensor)
        known = torch.unique(torch.cat([self.values, values]))
        return Labels(known, self.distinct and _distinct(tensor, values))


class Other(Protocol):
    """A family that is not a function of a value, with its state for the task's inputs."""

    known: dict[int, Any]
    """State by position of the tensors that it changes."""
    way: int

    def ways(self) -> list[int]:
        """The ways of changing them, in the order in which they are tried."""

    def ties(self) -> bool:
        """Whether the chosen way makes elements equal that were not."""

    def change(self, inputs: Any, seed: int) -> Any:
        """The inputs, changed in the chosen way, determined by the seed."""


def changeable(given: torch.Tensor) -> Traits | None:
    """The traits of a tensor whose values are quantities. None where another value may be invalid:
    not floating, not dense, not finite, all integers (labels, masks and indices stored as floats,
    states of zeros), constant, sorted along a dimension (bounds, times), or with equal sums along
    one (probabilities). Unit vectors count as quantities; the reference's result shows whether
    longer vectors are valid."""
    if not given.is_floating_point() or (tensor := dense(given)) is None or tensor.numel() < 2:
        return None
    low, high = (bound.item() for bound in torch.aminmax(tensor))
    # In memory order: tests of single elements do not depend on the order.
    flat = tensor.as_strided((tensor.numel(),), (1,))
    whole = all(bool((piece == piece.round()).all()) for (piece,) in pieces(flat))
    if not (float("-inf") < low < high < float("inf")) or whole:
        return None
    for dim in range(tensor.dim()):
        if tensor.shape[dim] > 1 and (ordered(tensor, dim) or _equal_sums(tensor, dim)):
            return None
    mean = _total(flat) / tensor.numel()
    size = (_total(flat, square=True) / tensor.numel()) ** 0.5
    spread = max(size * size - mean * mean, 0.0) ** 0.5
    return Traits(spread, size, low < 0 < high, max(-low, high))


def exchangeable(given: torch.Tensor) -> Labels | None:
    """The interchangeable values of an integer tensor. None where their order or sum may have a
    meaning (offsets, lengths), or the tensor has too few values (masks) or too many elements to
    collect them."""
    if given.dtype not in INTEGERS or (tensor := dense(workable(given))) is None:
        return None
    if not 2 < tensor.numel() <= MOST_LABELS:
        return None
    for dim in range(tensor.dim()):
        if tensor.shape[dim] > 1 and (ordered(tensor, dim) or _equal_sums(tensor, dim)):
            return None
    values = torch.unique(tensor)
    if values.numel() <= 2:
        return None
    return Labels(values, _distinct(tensor, values))


def _distinct(tensor: torch.Tensor, values: torch.Tensor) -> bool:
    """Whether a tensor, or each of its rows, has no repeated value."""
    if values.numel() == tensor.numel():
        return True
    if tensor.dim() < 2 or tensor.shape[-1] < 2:
        return False
    rows = tensor.sort(-1).values
    return not bool((rows[..., 1:] == rows[..., :-1]).any())


def _total(flat: torch.Tensor, square: bool = False) -> float:
    """The sum of a vector's elements, or of their squares, in double."""
    parts = (piece.float().square() if square else piece for (piece,) in pieces(flat))
    return sum(part.sum(dtype=torch.float64) for part in parts).item()


def in_order(tensor: torch.Tensor) -> bool:
    """Whether a vector never decreases."""
    return tensor.dim() == 1 and bool((tensor[1:] >= tensor[:-1]).all())


def ordered(tensor: torch.Tensor, dim: int) -> bool:
    count = tensor.shape[dim] - 1
    if count < 7:  # fewer may be sorted by coincidence
        return False
    up = down = True
    for slab in slabs(tensor, dim):
        before, after = slab.narrow(dim, 0, count), slab.narrow(dim, 1, count)
        up = up and bool((before <= after).all())
        down = down and bool((before >= after).all())
        if not (up or down):
            return False
    return True


def _equal_sums(tensor: torch.Tensor, dim: int) -> bool:
    count = tensor.shape[dim]
    if tensor.numel() == count:
        flat = tensor.as_strided((tensor.numel(),), (1,))
        return abs(_total(flat) - 1) < EQUAL_SUMS
    flat = tensor.as_strided((tensor.numel(),), (1,))
    mean, square = (_total(flat, square) / tensor.numel() for square in (False, True))
    spread = max(square - mean * mean, 0.0) ** 0.5
    chance = BY_CHANCE * spread / max(abs(mean), 1e-300) / count**0.5
    slack = EQUAL_SUMS
    if tensor.is_floating_point() and tensor.element_size() <= 2:
        slack += ROUNDINGS * torch.finfo(tensor.dtype).eps / count**0.5
    bounds = []
    for slab in slabs(tensor, dim):
        bounds.append(torch.stack(torch.aminmax(slab.sum(dim, dtype=torch.float64))))
    low, high = (bound.item() for bound in torch.aminmax(torch.stack(bounds)))
    return high - low <= min(slack, chance) * max(abs(low), abs(high))


def _uniform(values: torch.Tensor, seed: int) -> torch.Tensor:
    """A float32 number in (0, 1) for each value: its bits, hashed with the seed (the finaliser of
    MurmurHash3 with other shifts)."""
    bits = values.float().view(torch.int32) + (seed & 0x7FFF_FFFF)
    for shift, factor in ((16, -2048144789), (13, -1028477387), (15, 668265263)):
        bits ^= bits >> shift
        bits *= factor
    bits ^= bits >> 16
    return ((bits & 0x7F_FFFF).float() + 0.5) * 2.0**-23


INTEGERS = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8} | UNSIGNED
MOST_LABELS = 1 << 22
"""Largest integer tensor, in elements, that is sorted to collect its values."""
Change = Callable[[torch.Tensor, Traits, int], torch.Tensor]


def _normal(values: torch.Tensor, traits: Traits, seed: int) -> torch.Tensor:
    unit = torch.erfinv(2 * _uniform(values, seed) - 1) * 2**0.5
    return torch.where(values == 0, 0.0, unit * traits.size)


def _offset(values: torch.Tensor, traits: Traits, _: int) -> torch.Tensor:
    return torch.where(values == 0, 0.0, values + 4 * traits.spread)


def _sparse(values: torch.Tensor, _: Traits, seed: int) -> torch.Tensor:
    return torch.where(_uniform(values, seed) < 0.5, values, 0.0)


def _integers(values: torch.Tensor, traits: Traits, seed: int) -> torch.Tensor:
    count, least = (7, -3) if traits.signed else (4, 0)
    whole = torch.floor(count * _uniform(values, seed)) + least
    return torch.where(values == 0, 0.0, whole)


def _outliers(values: torch.Tensor, _: Traits, seed: int) -> torch.Tensor:
    return torch.where(_uniform(values, seed) < 1 / 512, 4 * values, values)


def _huge(values: torch.Tensor, traits: Traits, _: int) -> torch.Tensor:
    # In float64: the factor may exceed half precision.
    return (values.double() * (HUGE / traits.largest)).to(values.dtype)


def _faint(values: torch.Tensor, *_: Any) -> torch.Tensor:
    return values * 2.0 ** -round(FAINT * math.log2(torch.finfo(values.dtype).max))


def _steep(values: torch.Tensor, traits: Traits, _: int) -> torch.Tensor:
    return (values.double() * (STEEP / traits.largest)).to(values.dtype)


def _spike(values: torch.Tensor, traits: Traits, seed: int) -> torch.Tensor:
    far = _chance(values, traits, seed) <= traits.least
    return torch.where(far, values.sign() * SPIKE * traits.largest, values)


def _chance(values: torch.Tensor, traits: Traits, seed: int) -> torch.Tensor:
    """As ``_uniform``, but 1 for zeros, and for negative numbers if the tensor has both signs: the
    sign of a spike must not depend on the seed."""
    out = values <= 0 if traits.signed else values == 0
    return torch.where(out, 1.0, _uniform(values, seed))


def _non_finite(values: torch.Tensor, _: Traits, seed: int) -> torch.Tensor:
    chance = _uniform(values, seed) * 512 * 3
    result = torch.where(chance < 1, float("nan"), values)
    result = torch.where((chance >= 1) & (chance < 2), float("inf"), result)
    return torch.where((chance >= 2) & (chance < 3), float("-inf"), result)


def _exchanged(values: torch.Tensor, labels: Labels, seed: int) -> torch.Tensor:
    """Replaces each value by another, one to one."""
    known = labels.values
    count = known.numel()
    rank = torch.searchsorted(known, values).clamp_(max=count - 1)
    generator = torch.Generator().manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    order = torch.randperm(count, generator=generator).to(known.device)
    return torch.where(known[rank] == values, known[order[rank]], values)


def _extreme(values: torch.Tensor, labels: Labels, seed: int) -> torch.Tensor:
    """Replaces one of eight values by the least or the greatest."""
    if labels.distinct:
        return values
    chance = _uniform(values, seed)
    ends = torch.where(chance < 1 / 16, labels.values[0], labels.values[-1])
    return torch.where(chance < 1 / 8, ends, values)


HUGE = 0.75 * torch.finfo(torch.float16).max
"""Largest magnitude of the family ``huge``, in every dtype. Its exponential overflows in all dtypes
but float64; its square overflows only in half precision."""
STEEP = 128.0
"""Largest magnitude of the family ``steep``. Its exponential overflows in float32, and amplifies
rounding errors at most to 128 units."""
FAINT = 0.3
"""Share of the range of exponents by which ``faint`` lowers all numbers. Products of three such are
still normal numbers."""
SPIKE = 32.0
"""Magnitude of a spike, in units of the largest magnitude. In a row of normal numbers a spike
dominates a softmax, and overflows one without subtraction of the maximum."""
LABELS = {"normal": _exchanged, "outliers": _extreme}
"""Functions of integer values by family."""
FAMILIES: dict[str, Change] = {
    "normal": _normal,
    "offset": _offset,
    "large": lambda values, *_: 16 * values,
    "small": lambda values, *_: values / 64,
    "faint": _faint,
    "sparse": _sparse,
    "integers": _integers,
    "outliers": _outliers,
    "steep": _steep,
    "huge": _huge,
    "spike": _spike,
    "non_finite": _non_finite,
}
"""Families that are functions of a value; see ``InputFamily`` in ``crates/record``."""
SLICES, CONSTANTS, CLUSTERS = "slices", "constants", "clusters"
STRUCTURES, ENDS = "structures", "ends"
"""Families that are not functions of a value: ``slices.py``, ``constants.py``, ``clusters.py``,
``structures.py``."""
A_FEW_SLICES = {SLICES, ENDS}
"""Families that make a few slices very different from the others."""
TRIED_FIRST = (
    "normal", CONSTANTS, SLICES, CLUSTERS, "sparse", "steep", "spike", "large",
    "outliers", "offset", "integers", "huge", "small", FAINTLY, STRUCTURES, ENDS,
)  # fmt: skip
"""The order in which families are tried where time is short: first those that have both signs and
reveal lower precision, then those on which wrong programs were observed to fail."""
TIES = {"sparse", "integers"}
"""Families that make elements equal that were not."""
LAST = "non_finite"
"""Tried only where a non-floating output is constant on all other families, or the reference tests
whether numbers are finite: honest programs treat non-finite numbers differently."""


def change(inputs: Any, family: str, traits: dict[int, Traits | Labels], seed: int) -> Any:
    """The inputs of a family: ``inputs`` with new tensors at the positions in ``traits``."""
    if family == OWN:
        return inputs
    tensors: list[torch.Tensor] = []
    tree = flatten(inputs, tensors)
    for index, known in traits.items():
        made, each = None, dense(tensors[index])
        if each is None:
            continue  # not dense, unlike the tensor that the traits are from
        if isinstance(known, Traits):
            made = _changed(workable(each), FAMILIES[family], known, seed)
        elif family in LABELS:
            made = LABELS[family](workable(each), known, seed)
        if made is not None:
            tensors[index] = laid_out(restored(made, each), tensors[index])
    return unflatten(tree, tensors)


def each_changed(
    inputs: Any,
    seed: int,
    known: dict[int, Any],
    made: Callable[[torch.Tensor, Any, torch.Generator], torch.Tensor],
) -> Any:
    """``inputs`` with each known tensor replaced by ``made`` (its dense elements, its state, the
    random generator). The seed determines all randomness. Strides are kept."""
    tensors: list[torch.Tensor] = []
    tree = flatten(inputs, tensors)
    random = torch.Generator().manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    for index, what in known.items():
        if (each := dense(tensors[index])) is not None:
            changed = made(workable(each), what, random)
            tensors[index] = laid_out(restored(changed, each), tensors[index])
    return unflatten(tree, tensors)


def changes(family: str, traits: dict[int, Traits | Labels]) -> bool:
    """Whether a family changes any of the inputs."""
    return any(isinstance(known, Traits) or family in LABELS for known in traits.values())


def _changed(tensor: torch.Tensor, made: Change, traits: Traits, seed: int) -> torch.Tensor:
    result = torch.empty_like(tensor)
    shape = (tensor.numel(),)
    # Dense in memory order; the order of its dimensions does not matter.
    source, target = tensor.as_strided(shape, (1,)), result.as_strided(shape, (1,))
    piece = GPU_PIECE if tensor.is_cuda else HOST_PIECE
    if made is _spike:
        chances = (_chance(part, traits, seed).min() for part in source.split(piece))
        traits = replace(traits, least=torch.stack(list(chances)).min().item())
    for start in range(0, tensor.numel(), piece):
        values = source[start : start + piece]
        target[start : start + piece] = made(values, traits, seed).to(tensor.dtype)
    return result
