"""The truth of a few samples of the batch at a time, where that of all takes more memory than there
is.

Slicing is proven first, on a few samples of the task's own inputs, of which one is made much larger
than the others: slices must give what the whole gives, to within float64 rounding. A norm over
everything, statistics of the batch, a sum or a mean over it, an order of the samples: none does.

Such a truth is stored in the precision of the outputs, float32 at least: it takes no more memory
than a result does. Its rounding is a part of any candidate's error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .arena import ALIGN
from .tensors import Place, flatten, outline, place, widened

if TYPE_CHECKING:
    from .oracle import Oracle

FEW = 6
"""Samples of the batch on which slicing is proven."""
SPLITS: tuple[tuple[int, ...], ...] = ((1, 1, 1, 1, 1, 1), (1, 5), (4, 2))
"""How these are cut."""
FACTOR = 64.0
"""How much larger one of them is made. Powers of two are exact."""
ROUNDING = 1e-11
"""Largest difference of both ways, relative to an output's largest element. Dependence that is not
larger would not matter to a result in float32."""
WEIGHT_BYTES = 1 << 30
"""Most that both sets of weights may take in float64: they are whole for every slice."""
SLICE_BYTES = 1 << 30
"""Inputs and results of a slice, in float64, to begin with."""

Call = Callable[[list[torch.Tensor]], Any]
"""A call of the reference on float64 copies of its inputs."""


class NotSliceableError(Exception):
    """Why a reference cannot be computed by slices."""


@dataclass
class Batches:
    """How the calls of a reference are divided."""

    cut: frozenset[int]
    """Tensors of the inputs whose first dimension is the batch; others are the same for all."""
    count: int
    """Samples of the batch."""
    rows: int
    """Samples of a slice; fewer once memory was exhausted."""
    dtypes: list[torch.dtype]
    """Of the stored outputs."""

    def outlines(self, call: Call, tensors: list[torch.Tensor]) -> tuple[Any, list[Place]]:
        """The tree of the outputs and their places, without offsets."""
        made: list[torch.Tensor] = []
        tree = flatten(call(self._part(tensors, 0, 1)), made)
        places = []
        for tensor, dtype in zip(made, self.dtypes, strict=True):
            shape = (self.count, *tensor.shape[1:])
            places.append(place(torch.empty(shape, dtype=dtype, device="meta"), None))
        return tree, places

    def fill(self, call: Call, tensors: list[torch.Tensor], into: list[torch.Tensor]) -> None:
        """Computes all slices, one after the other."""
        begin = 0
        while begin < self.count:
            end = min(begin + self.rows, self.count)
            made: list[torch.Tensor] = []
            try:
                flatten(call(self._part(tensors, begin, end)), made)
            except torch.OutOfMemoryError:
                if self.rows == 1:
                    raise
                self.rows = max(1, self.rows // 4)
                made.clear()
                torch.cuda.empty_cache()
                continue
            for whole, part in zip(into, made, strict=True):
                whole[begin:end].copy_(part)
            begin = end

    def _part(self, tensors: list[torch.Tensor], begin: int, end: int) -> list[torch.Tensor]:
        return [
            widened(tensor[begin:end] if i in self.cut else tensor)
            for i, tensor in enumerate(tensors)
        ]


def proven(oracle: Oracle, variant: str, seed: int) -> Batches:
    """How the reference can be computed by slices. Raises ``NotSliceableError`` with the reason if
    it cannot."""
    if oracle.changes or oracle.draws:
        raise NotSliceableError("it changes its inputs, or samples random numbers")
    if any(dtype.is_complex for dtype in oracle.dtypes):
        raise NotSliceableError("it returns complex numbers")
    state = oracle.models[variant].state_dict().values()
    if 2 * 8 * sum(t.numel() for t in state) > WEIGHT_BYTES:
        raise NotSliceableError("its weights in float64 take as much memory")
    tensors: list[torch.Tensor] = []
    tree = flatten(oracle.drawn_inputs(seed), tensors)
    reason = "no input has a batch dimension"
    call = oracle.truth.caller(variant, tree)
    for cut, count in _cuts(tensors):
        try:
            _prove(call, [_some(t, count) if i in cut else t for i, t in enumerate(tensors)], cut)
        except NotSliceableError as error:
            reason = str(error)
            continue
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            reason = f"it fails on part of the batch: {str(error).splitlines()[0][:200]}"
            continue
        wide = [torch.float64 if d == torch.float64 else torch.float32 for d in oracle.dtypes]
        kinds = zip(oracle.dtypes, wide, strict=True)
        dtypes = [w if d.is_floating_point else d for d, w in kinds]
        whole = 2 * oracle.elements + sum(t.numel() for t in tensors)
        rows = max(1, SLICE_BYTES // max(8 * whole // count, 1))
        return Batches(cut, count, min(rows, count), dtypes)
    raise NotSliceableError(reason)


def _cuts(tensors: list[torch.Tensor]) -> Iterator[tuple[frozenset[int], int]]:
    """Which inputs may have the batch as their first dimension, and its size: all of the same size,
    or the first alone."""
    sized = [(i, t.shape[0]) for i, t in enumerate(tensors) if t.dim()]
    for first, count in sized[:2]:
        if count < 2:
            continue
        yield frozenset(i for i, size in sized if size == count), count
        yield frozenset({first}), count


def _some(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """Samples from all over the batch."""
    chosen = torch.linspace(0, count - 1, FEW).round().long()
    return tensor[chosen.to(tensor.device)]


def _prove(call: Call, few: list[torch.Tensor], cut: frozenset[int]) -> None:
    for large in (None, 2):
        given = [_with_larger(t, large) if i in cut else t for i, t in enumerate(few)]
        whole: list[torch.Tensor] = []
        tree = outline(flatten(call([widened(t) for t in given]), whole))
        if any(not t.dim() or t.shape[0] != FEW for t in whole) or not whole:
            raise NotSliceableError("an output does not have the batch as its first dimension")
        for split in SPLITS:
            parts: list[list[torch.Tensor]] = []
            begin = 0
            for rows in split:
                end = begin + rows
                some = [widened(t[begin:end] if i in cut else t) for i, t in enumerate(given)]
                made: list[torch.Tensor] = []
                if outline(flatten(call(some), made)) != tree:
                    raise NotSliceableError("its outputs are built differently for part of a batch")
                parts.append(made)
                begin = end
            for index, together in enumerate(whole):
                _must_agree(together, [made[index] for made in parts])


def _with_larger(tensor: torch.Tensor, row: int | None) -> torch.Tensor:
    if row is None or not tensor.is_floating_point():
        return tensor
    larger = tensor.clone()
    larger[row] *= FACTOR
    return larger


def _must_agree(whole: torch.Tensor, parts: list[torch.Tensor]) -> None:
    if any(part.shape[1:] != whole.shape[1:] for part in parts):
        raise NotSliceableError("the shape of an output depends on the size of the batch")
    sliced = torch.cat(parts)
    if sliced.shape != whole.shape:
        raise NotSliceableError("an output does not have the batch as its first dimension")
    if not whole.is_floating_point():
        agree = torch.equal(sliced, whole)
    else:
        finite = whole[torch.isfinite(whole)]
        bound = ROUNDING * finite.abs().max().item() if finite.numel() else 0.0
        agree = torch.isclose(sliced, whole, rtol=0.0, atol=bound, equal_nan=True).all().item()
    if not agree:
        raise NotSliceableError("part of a batch gives other results than all of it")


def stored(
    oracle: Oracle, batches: Batches, call: Call, tensors: list[torch.Tensor], offset: int
) -> tuple[Any, list[Place], int]:
    """Computes the truth into the arena, from ``offset`` on. Returns its tree, its places, and the
    next offset."""
    tree, outlines = batches.outlines(call, tensors)
    places: list[Place] = []
    for at in outlines:
        if offset + at["bytes"] > oracle.arena.size:
            raise MemoryError(f"the arena of {oracle.arena.size} bytes is too small for the truth")
        places.append({**at, "offset": offset})
        offset += -(-at["bytes"] // ALIGN) * ALIGN
    batches.fill(call, tensors, [oracle.arena.view(at) for at in places])
    return tree, places, offset
