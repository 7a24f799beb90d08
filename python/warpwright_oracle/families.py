"""Other inputs than ``get_inputs()`` draws, made from them.

A family is a function of an element's value, the same for all elements: equal elements stay equal
and zeros stay zero, so that symmetric, triangular, sparse and repeated inputs stay what they are.
Where it needs chance, that is a hash of the value and a seed. Shape, dtype and strides are kept;
integers, booleans and plain values are not touched, nor floating tensors whose values say that
they mean something else than a quantity (``changeable``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .distance import pieces, slabs
from .tensors import flatten, span, unflatten

OWN = "own"
GPU_PIECE, HOST_PIECE = 1 << 24, 1 << 17
"""Elements of a large tensor that are changed together: on the host, what its caches hold."""
EQUAL_SUMS = 1e-5
"""Relative spread below which sums along a dimension count as equal: float32 probabilities of up to
some thousand terms stay within; sums of independent draws do so from 10^9 terms on."""


@dataclass(frozen=True)
class Traits:
    """What a family needs to know of a tensor, from one draw of it and the same ever after."""

    spread: float
    """Standard deviation."""
    size: float
    """Root mean square."""
    signed: bool
    """Whether it has values of both signs."""


def changeable(tensor: torch.Tensor) -> Traits | None:
    """The traits of a tensor whose values are quantities; None where another value might mean
    nothing: not floating, not dense, not finite, all integers (labels, masks and indices that are
    stored as floats, states of zeros), constant, in order along a dimension (bounds, times), or
    with equal sums or equal sums of squares along one (probabilities, unit vectors)."""
    if not tensor.is_floating_point() or tensor.numel() < 2 or span(tensor) != tensor.numel():
        return None
    low, high = (bound.item() for bound in torch.aminmax(tensor))
    # In memory order: what is asked of single elements does not depend on it.
    flat = tensor.as_strided((tensor.numel(),), (1,))
    whole = all(bool((piece == piece.round()).all()) for (piece,) in pieces(flat))
    if not (float("-inf") < low < high < float("inf")) or whole:
        return None
    for dim in range(tensor.dim()):
        if tensor.shape[dim] > 1 and (_ordered(tensor, dim) or _equal_sums(tensor, dim)):
            return None
    mean = _total(flat) / tensor.numel()
    size = (_total(flat, square=True) / tensor.numel()) ** 0.5
    spread = max(size * size - mean * mean, 0.0) ** 0.5
    return Traits(spread, size, low < 0 < high)


def _total(flat: torch.Tensor, square: bool = False) -> float:
    """The sum of a vector's elements, or of their squares, in double."""
    parts = (piece.float().square() if square else piece for (piece,) in pieces(flat))
    return sum(part.sum(dtype=torch.float64) for part in parts).item()


def _ordered(tensor: torch.Tensor, dim: int) -> bool:
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
    if tensor.numel() == tensor.shape[dim]:
        flat = tensor.as_strided((tensor.numel(),), (1,))
        return any(abs(_total(flat, square) - 1) < EQUAL_SUMS for square in (False, True))
    slack = EQUAL_SUMS if tensor.element_size() > 2 else 1e-2
    for square in (False, True):
        bounds = []
        for slab in slabs(tensor, dim):
            values = slab.float().square() if square else slab
            bounds.append(torch.stack(torch.aminmax(values.sum(dim, dtype=torch.float64))))
        low, high = (bound.item() for bound in torch.aminmax(torch.stack(bounds)))
        if high - low <= slack * max(abs(low), abs(high)):
            return True
    return False


def _uniform(values: torch.Tensor, seed: int) -> torch.Tensor:
    """A number in (0, 1) for each value, float32: its bits, mixed with the seed (the finaliser of
    MurmurHash3 with other shifts)."""
    bits = values.float().view(torch.int32) + (seed & 0x7FFF_FFFF)
    for shift, factor in ((16, -2048144789), (13, -1028477387), (15, 668265263)):
        bits ^= bits >> shift
        bits *= factor
    bits ^= bits >> 16
    return ((bits & 0x7F_FFFF).float() + 0.5) * 2.0**-23


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


FAMILIES: dict[str, Change] = {
    "normal": _normal,
    "offset": _offset,
    "large": lambda values, *_: 16 * values,
    "small": lambda values, *_: values / 64,
    "sparse": _sparse,
    "integers": _integers,
    "outliers": _outliers,
}
"""All but ``own``. What they are is told by ``InputFamily`` in ``crates/record``."""
TIES = {"sparse", "integers"}
"""Families that make elements equal which were not."""


def change(inputs: Any, family: str, traits: dict[int, Traits], seed: int) -> Any:
    """``inputs`` as of the family: new tensors for those that ``traits`` names by position."""
    if family == OWN:
        return inputs
    tensors: list[torch.Tensor] = []
    tree = flatten(inputs, tensors)
    for index, known in traits.items():
        tensors[index] = _changed(tensors[index], FAMILIES[family], known, seed)
    return unflatten(tree, tensors)


def _changed(tensor: torch.Tensor, made: Change, traits: Traits, seed: int) -> torch.Tensor:
    result = torch.empty_like(tensor)
    shape = (tensor.numel(),)
    # Dense, whatever the order of its dimensions: memory order will do.
    source, target = tensor.as_strided(shape, (1,)), result.as_strided(shape, (1,))
    piece = GPU_PIECE if tensor.is_cuda else HOST_PIECE
    for start in range(0, tensor.numel(), piece):
        values = source[start : start + piece]
        target[start : start + piece] = made(values, traits, seed).to(tensor.dtype)
    return result
