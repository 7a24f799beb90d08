"""The truth of a few samples of the batch at a time, where that of all takes more memory than there
is.

Slicing is proven first, on a few samples of the task's own inputs, of which one is made much larger
than the others: slices must give what the whole gives, to within float64 rounding. A norm over
everything, statistics of the batch, a sum or a mean over it, an order of the samples: none does.
What a few samples hide (a limit on the norm of many, a sample's position) is then found by one
sample of inputs at full size: slices must give what the same-precision reference gives, to within
what honest programs differ by.

Such a truth is stored in the precision of the outputs, float32 at least: it takes no more memory
than a result does. Its rounding is a part of any candidate's error.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .arena import ALIGN
from .distance import Distance, distance
from .rounding import UNIT, Reordered, jitter
from .tensors import Place, flatten, is_real, outline, place, widened

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

TIMES = 64.0
"""Largest difference of slices and the whole, in units of an honest program's error."""
MOST = 1 / 32
"""The same in units of the output's root mean square, however large that error is."""
COARSE = 2.0**11
"""How much larger errors are where products may be computed in TF32."""
HALF_STEPS = 4.0
"""The same difference, in steps of a format of half precision, where a tensor has one."""
FAMILIES = 64.0
"""How much larger it may be on input families: these allow errors that are so much larger."""

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
    limits: list[float] = field(default_factory=list)
    """For each output the largest difference to the same-precision reference, in units of its root
    mean square."""

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
        for begin, end, made in self.each(call, tensors):
            for whole, part in zip(into, made, strict=True):
                whole[begin:end].copy_(part)

    def each(
        self, call: Call, tensors: list[torch.Tensor]
    ) -> Iterator[tuple[int, int, list[torch.Tensor]]]:
        """The slices' places and outputs."""
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
            yield begin, end, made
            begin = end

    def is_near(self, notes: list[dict[str, Any]], *, own: bool) -> bool:
        """Whether a truth is as near to the same-precision reference as slices may be; ``notes``
        as of ``Oracle.expected``, ``own``: the inputs are the task's own."""
        times = 1.0 if own else FAMILIES
        return all(
            not note["apart"] and note["beyond"] <= times * limit * note["rms"]
            for note, limit in zip(notes, self.limits, strict=True)
        )

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
    wide = oracle.truth.model(variant)
    if wide is None:
        raise NotSliceableError("it does not run in float64")
    # On the host: an index that is too large for a few samples would end a GPU's context.
    call = oracle.truth.caller(variant, tree, model=copy.deepcopy(wide).cpu())
    for cut, count in _cuts(tensors):
        if any(8 * t.numel() > SLICE_BYTES for i, t in enumerate(tensors) if i not in cut):
            reason = "an input without a batch dimension takes as much memory"
            continue
        few = [_some(t, count) if i in cut else t for i, t in enumerate(tensors)]
        try:
            _prove(call, [t.cpu() for t in few], cut)
        except NotSliceableError as error:
            reason = str(error)
            continue
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            reason = f"it fails on part of the batch: {str(error).splitlines()[0][:200]}"
            continue
        dtypes = [
            torch.float32 if d.is_floating_point and d != torch.float64 else d
            for d in oracle.dtypes
        ]
        whole = 2 * oracle.elements + sum(t.numel() for t in tensors)
        rows = max(1, SLICE_BYTES // max(8 * whole // count, 1))
        # Several slices, or the whole would be compared with itself.
        slicing = Batches(cut, count, min(rows, -(-count // 4)), dtypes)
        slicing.limits = _confirmed(oracle, variant, seed, slicing)
        return slicing
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


def _confirmed(oracle: Oracle, variant: str, seed: int, slicing: Batches) -> list[float]:
    """Compares one sample of inputs at full size. Returns ``Batches.limits``."""
    inputs = oracle.drawn_inputs(seed)
    tensors: list[torch.Tensor] = []
    tree = flatten(inputs, tensors)
    results = oracle.call(variant, inputs, 1).tensors
    exact = oracle.truth.caller(variant, tree)
    erring = oracle.truth.caller(variant, tree, lambda: Reordered(1.0))

    def both(part: list[torch.Tensor]) -> list[Any]:
        shaken = [t.clone() for t in part]
        for tensor in shaken:
            if tensor.is_floating_point():
                jitter(tensor, 0.0, 1.0)
        return [exact(part), erring(shaken)]

    seen = [_Seen() for _ in results]
    for begin, end, made in slicing.each(both, tensors):
        truths, others = made[: len(results)], made[len(results) :]
        for one, result, truth, other in zip(seen, results, truths, others, strict=True):
            one.add(result[begin:end], truth, other)
    floor = TIMES * UNIT * (1.0 if oracle.profile == "strict" else COARSE)
    state = oracle.models[variant].state_dict().values()
    for tensor in (*tensors, *results, *state):
        if tensor.dtype in (torch.float16, torch.bfloat16):
            floor = max(floor, HALF_STEPS * torch.finfo(tensor.dtype).eps)
    limits = [one.limit(floor) for one in seen]
    if not all(one.is_near(limit) for one, limit in zip(seen, limits, strict=True)):
        raise NotSliceableError("slices differ from the whole at full size")
    return limits


class _Seen:
    """Differences of one output, over all slices."""

    def __init__(self) -> None:
        self.count, self.squares = 0, 0.0
        self.error = self.honest = 0.0
        self.unequal = self.unequal_honestly = 0
        self.agrees = True

    def add(self, result: torch.Tensor, truth: torch.Tensor, other: torch.Tensor) -> None:
        """A slice of the same-precision reference, of the truth, and of an honest program."""
        if not is_real(result.dtype):
            self.unequal += int((result != truth).sum().item())
            self.unequal_honestly += int((other != truth).sum().item())
            return
        mine: Distance = distance(result, truth)
        self.agrees = self.agrees and mine.agrees
        self.error = max(self.error, mine.error if mine.apart else mine.beyond)
        self.honest = max(self.honest, distance(other, truth).near)
        self.count += mine.count
        self.squares += mine.count * mine.rms**2

    @property
    def rms(self) -> float:
        return (self.squares / max(self.count, 1)) ** 0.5

    def limit(self, floor: float) -> float:
        """In units of the root mean square."""
        honest = TIMES * self.honest / self.rms if self.rms else 0.0
        return max(floor, min(honest, MOST))

    def is_near(self, limit: float) -> bool:
        near = self.agrees and self.error <= limit * self.rms
        return near and self.unequal <= TIMES * self.unequal_honestly


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
