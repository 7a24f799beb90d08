"""Other inputs than ``get_inputs()`` draws, made from them.

A family here is a function of an element's value, the same for all elements: equal ones stay equal
and zeros stay zero, so that symmetric, triangular, sparse and repeated inputs stay what they are.
Where it needs chance, that is a hash of the value and a seed. Shape, dtype and strides are kept;
booleans and plain values are not touched, nor floating tensors whose values say that they mean
something else than a quantity (``changeable``). Integers are exchanged for others that the task's
own draw has (``Labels``): what it indexes stays in range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from .distance import pieces, slabs
from .tensors import dense, flatten, laid_out, unflatten

OWN, NORMAL = "own", "normal"
GPU_PIECE, HOST_PIECE = 1 << 24, 1 << 17
"""Elements of a large tensor that are changed together: on the host, what its caches hold."""
EQUAL_SUMS = 1e-5
"""Relative spread below which sums along a dimension count as equal in float32: probabilities of up
to some thousand terms stay within."""
BY_CHANCE = 0.05
"""Of the spread that sums of independent values with this mean and spread would have: sums that are
further apart are not meant to be equal. Half precision's probabilities stay within."""
ROUNDINGS = 8
"""Units in the last place of a short format that a sum of probabilities is off by, as a share of a
term over the root of their number."""


@dataclass(frozen=True)
class Traits:
    """What a family needs to know of a tensor, from one draw of it and the same ever after."""

    spread: float
    """Standard deviation."""
    size: float
    """Root mean square."""
    signed: bool
    """Whether it has values of both signs."""
    largest: float = 1.0
    """Largest magnitude."""
    least: float = 0.0
    """Least chance that an element of the tensor at hand has."""


@dataclass(frozen=True)
class Labels:
    """What a family needs to know of an integer tensor: the values that one draw of it has."""

    values: torch.Tensor
    """In ascending order, each once."""
    distinct: bool = False
    """Whether no draw has a value twice, in a row at least: places to write to, chosen experts. Two
    writes to one place have no order."""
    size: float = 0.0
    """No zero among them is put in as an error may."""

    def beside(self, tensor: torch.Tensor) -> Labels:
        """With what another draw says."""
        values = torch.unique(tensor)
        known = torch.unique(torch.cat([self.values, values]))
        return Labels(known, self.distinct and _distinct(tensor, values))


class Other(Protocol):
    """A family that is no function of a value, with what it needs to know of the inputs."""

    known: dict[int, Any]
    """By position, of the tensors that it changes."""
    way: int

    def ways(self) -> list[int]:
        """The ways of changing them, in the order in which they are to be tried."""

    def ties(self) -> bool:
        """Whether the chosen way makes elements equal which were not."""

    def change(self, inputs: Any, seed: int) -> Any:
        """The inputs, changed in the chosen way as a seed has them."""


def changeable(given: torch.Tensor) -> Traits | None:
    """The traits of a tensor whose values are quantities; None where another value might mean
    nothing: not floating, not dense, not finite, all integers (labels, masks and indices that are
    stored as floats, states of zeros), constant, in order along a dimension (bounds, times), or
    with equal sums along one (probabilities). Unit vectors are changed as others are: what a
    reference makes of longer ones it says itself."""
    if not given.is_floating_point() or (tensor := dense(given)) is None or tensor.numel() < 2:
        return None
    low, high = (bound.item() for bound in torch.aminmax(tensor))
    # In memory order: what is asked of single elements does not depend on it.
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
    """The values of an integer tensor that may be exchanged for each other; None where their order
    or their sum may mean something (offsets, lengths), or there are too few of them (masks) or too
    many to know."""
    if given.dtype not in INTEGERS or (tensor := dense(given)) is None:
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
    """Whether a tensor has no value twice, or no row of it has."""
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
    """Whether a vector does not fall anywhere, however short it is."""
    return tensor.dim() == 1 and bool((tensor[1:] >= tensor[:-1]).all())


def ordered(tensor: torch.Tensor, dim: int) -> bool:
    count = tensor.shape[dim] - 1
    if count < 7:  # so few are in order by chance
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
    """A number in (0, 1) for each value, float32: its bits, mixed with the seed (the finaliser of
    MurmurHash3 with other shifts)."""
    bits = values.float().view(torch.int32) + (seed & 0x7FFF_FFFF)
    for shift, factor in ((16, -2048144789), (13, -1028477387), (15, 668265263)):
        bits ^= bits >> shift
        bits *= factor
    bits ^= bits >> 16
    return ((bits & 0x7F_FFFF).float() + 0.5) * 2.0**-23


INTEGERS = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}
MOST_LABELS = 1 << 22
"""Elements of an integer tensor that are sorted to know its values."""
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
    # In double: the factor may be beyond half precision.
    return (values.double() * (HUGE / traits.largest)).to(values.dtype)


def _steep(values: torch.Tensor, traits: Traits, _: int) -> torch.Tensor:
    return (values.double() * (STEEP / traits.largest)).to(values.dtype)


def _spike(values: torch.Tensor, traits: Traits, seed: int) -> torch.Tensor:
    far = _chance(values, traits, seed) <= traits.least
    return torch.where(far, values.sign() * SPIKE * traits.largest, values)


def _chance(values: torch.Tensor, traits: Traits, seed: int) -> torch.Tensor:
    """As ``_uniform``, but the most of zeros, and of negative numbers where there are others: which
    sign a spike has must not depend on the seed."""
    out = values <= 0 if traits.signed else values == 0
    return torch.where(out, 1.0, _uniform(values, seed))


def _non_finite(values: torch.Tensor, _: Traits, seed: int) -> torch.Tensor:
    chance = _uniform(values, seed) * 512 * 3
    result = torch.where(chance < 1, float("nan"), values)
    result = torch.where((chance >= 1) & (chance < 2), float("inf"), result)
    return torch.where((chance >= 2) & (chance < 3), float("-inf"), result)


def _exchanged(values: torch.Tensor, labels: Labels, seed: int) -> torch.Tensor:
    """Each value by another, no two by the same."""
    known = labels.values
    count = known.numel()
    rank = torch.searchsorted(known, values).clamp_(max=count - 1)
    generator = torch.Generator().manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    order = torch.randperm(count, generator=generator).to(known.device)
    return torch.where(known[rank] == values, known[order[rank]], values)


def _extreme(values: torch.Tensor, labels: Labels, seed: int) -> torch.Tensor:
    """One of eight values by the least or the greatest."""
    if labels.distinct:
        return values
    chance = _uniform(values, seed)
    ends = torch.where(chance < 1 / 16, labels.values[0], labels.values[-1])
    return torch.where(chance < 1 / 8, ends, values)


HUGE = 0.75 * torch.finfo(torch.float16).max
"""Largest magnitude of the family ``huge``, in every dtype: its exponential overflows in all but
double, its square not but in half precision."""
STEEP = 128.0
"""Of the family ``steep``: its exponential overflows in float32, and errors of its roundings are no
more than 128 units."""
SPIKE = 32.0
"""How many times the largest magnitude a spike has: in a row of normal numbers it is alone in an
exponential, and overflows one that is not shifted by the largest of all."""
LABELS = {"normal": _exchanged, "outliers": _extreme}
"""What families make of integers."""
FAMILIES: dict[str, Change] = {
    "normal": _normal,
    "offset": _offset,
    "large": lambda values, *_: 16 * values,
    "small": lambda values, *_: values / 64,
    "sparse": _sparse,
    "integers": _integers,
    "outliers": _outliers,
    "steep": _steep,
    "huge": _huge,
    "spike": _spike,
    "non_finite": _non_finite,
}
"""The families that are functions of a value; ``InputFamily`` in ``crates/record`` says what each
is."""
SLICES, CONSTANTS, CLUSTERS = "slices", "constants", "clusters"
"""Families that are no functions of a value: ``slices.py``, ``constants.py``, ``clusters.py``."""
TRIED_FIRST = (
    "normal", CONSTANTS, SLICES, CLUSTERS, "sparse", "steep", "spike", "large",
    "outliers", "offset", "integers", "huge", "small",
)  # fmt: skip
"""The order in which families are tried where time is short: first those that have both signs and
tell lower precision, then those that wrong programs were seen to fail on."""
TIES = {"sparse", "integers"}
"""Families that make elements equal which were not."""
LAST = "non_finite"
"""Only tried where an output that is no floating one is constant on all others, or the reference
asks whether numbers are finite: honest programs differ in what they make of such numbers."""


def change(inputs: Any, family: str, traits: dict[int, Traits | Labels], seed: int) -> Any:
    """``inputs`` as of the family: new tensors for those that ``traits`` names by position."""
    if family == OWN:
        return inputs
    tensors: list[torch.Tensor] = []
    tree = flatten(inputs, tensors)
    for index, known in traits.items():
        made, each = None, dense(tensors[index])
        if each is None:
            continue  # this draw lies otherwise than the one that was looked at
        if isinstance(known, Traits):
            made = _changed(each, FAMILIES[family], known, seed)
        elif family in LABELS:
            made = LABELS[family](each, known, seed)
        if made is not None:
            tensors[index] = laid_out(made, tensors[index])
    return unflatten(tree, tensors)


def each_changed(
    inputs: Any,
    seed: int,
    known: dict[int, Any],
    made: Callable[[torch.Tensor, Any, torch.Generator], torch.Tensor],
) -> Any:
    """``inputs`` with what is made of each known tensor, without gaps, and what is known of it; all
    that chance decides comes from the seed. Strides are kept."""
    tensors: list[torch.Tensor] = []
    tree = flatten(inputs, tensors)
    random = torch.Generator().manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    for index, what in known.items():
        if (each := dense(tensors[index])) is not None:
            tensors[index] = laid_out(made(each, what, random), tensors[index])
    return unflatten(tree, tensors)


def changes(family: str, traits: dict[int, Traits | Labels]) -> bool:
    """Whether a family changes any of the inputs."""
    return any(isinstance(known, Traits) or family in LABELS for known in traits.values())


def _changed(tensor: torch.Tensor, made: Change, traits: Traits, seed: int) -> torch.Tensor:
    result = torch.empty_like(tensor)
    shape = (tensor.numel(),)
    # Dense, whatever the order of its dimensions: memory order will do.
    source, target = tensor.as_strided(shape, (1,)), result.as_strided(shape, (1,))
    piece = GPU_PIECE if tensor.is_cuda else HOST_PIECE
    if made is _spike:
        chances = (_chance(part, traits, seed).min() for part in source.split(piece))
        traits = replace(traits, least=torch.stack(list(chances)).min().item())
    for start in range(0, tensor.numel(), piece):
        values = source[start : start + piece]
        target[start : start + piece] = made(values, traits, seed).to(tensor.dtype)
    return result
