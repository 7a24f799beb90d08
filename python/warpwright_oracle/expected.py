"""Expected outputs of one sample: the truth, and the error of the same-precision reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .distance import INFINITE, distance, pieces
from .families import OWN
from .scales import by_scale
from .sizes import LARGE_BYTES
from .tensors import NAMES, Place, as_reals, is_real, outline, unflatten

if TYPE_CHECKING:
    from .oracle import Oracle

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
"""Types of a result that is stored as its own truth, where that is large."""


def expectation(oracle: Oracle, request: dict[str, Any]) -> dict[str, Any]:
    """The inputs of one seed and family, their truth, and the error of the same-precision
    reference, for ``Oracle.expected``."""
    family = request["family"]
    held = oracle.hold(request["seed"], family)
    input_tree, kept, offset = held.tree, held.places, held.end
    # Read the inputs from the arena: large ones would not fit twice.
    taken = [oracle.arena.view(at) for at in kept]
    inputs = unflatten(input_tree, taken)
    known = set(oracle.changes)
    # Compute and store the truth first, so that its memory is free for the other call.
    exact_tree, truths, end = _stored_truth(oracle, request, inputs, offset)
    ran = oracle.call(request["variant"], inputs, 1)
    tensors, tree, count = ran.tensors + ran.after, ran.tree, len(ran.tensors)
    changes = sorted(oracle.changes)
    if oracle.changes != known:  # the truth lacks an input that changed for the first time
        truths = []
    if truths and (outline(exact_tree) != outline(tree) or len(truths) != len(tensors)):
        if family != OWN:
            raise RuntimeError("its float64 outputs are built differently")
        oracle.truth.doubting(request["variant"], "its float64 outputs are built differently")
        truths = []
    slicing = oracle.truth.batches
    if truths and slicing is not None and request["double"]:
        pairs = zip(tensors, truths, strict=True)
        seen = [_note(t, oracle.arena.view(at), itself=False) for t, at in pairs if at is not None]
        if not slicing.is_near(seen, own=family == OWN):
            oracle.truth.doubt = f"slices of the batch differ from the whole on {family} inputs"
            truths = []
    if truths:
        offset = end
    else:
        truths, exact_tree = [None] * len(tensors), None
    notes, places = [], []
    for i, (tensor, truth) in enumerate(zip(tensors, truths, strict=True)):
        at = truth
        large = tensor.nbytes >= LARGE_BYTES and tensor.dtype in FLOATS
        if itself := truth is None and large:
            # Float64 would take memory that a large task has for its candidates.
            (at,), offset = oracle.arena.store([tensor.contiguous()], offset)
        elif truth is None:
            (at,), offset = _exactly(oracle, tensor, offset)
        places.append(at)
        note = _note(tensor, oracle.arena.view(at), itself=itself)
        if i >= count:
            moved, note["count"] = _moved(tensor, taken[changes[i - count]])
            note["spread"] = min(note["spread"], moved)
        elif (view := ran.views[i]) is not None:
            note["view_of"] = view
            note["count"] *= view in oracle.changes
        ambiguous, stated = note.pop("ambiguous"), request.get("stated", False)
        if ambiguous or stated:
            (own,), offset = oracle.arena.store([as_reals(tensor).contiguous()], offset)
            note["own"] = own if ambiguous else None
            note["stated"] = own if stated else None
        notes.append({**note, "truth": "same precision" if truth is None else "float64"})
    oracle.settle()
    return {
        "inputs": {"tree": input_tree, "tensors": kept},
        "outputs": {"tree": tree, "tensors": places[:count]},
        "exact_tree": exact_tree,
        "after": [{"input": i, "truth": at} for i, at in zip(changes, places[count:], strict=True)],
        "notes": notes,
        "doubt": oracle.truth.doubt,
        "void": "",
    }


def _note(tensor: torch.Tensor, exact: torch.Tensor, *, itself: bool) -> dict[str, Any]:
    """Properties of one output, or of an input that the reference changes. ``itself``: the truth is
    this result. ``ambiguous``: the same-precision reference's result counts as correct beside the
    truth. ``count``: how many elements distinguish a correct answer from a wrong one."""
    note: dict[str, Any] = {
        "dtype": NAMES.get(tensor.dtype, str(tensor.dtype)),
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
        "view_of": None,
        "own": None,
    }
    if not is_real(tensor.dtype):
        known = dict.fromkeys(("error", "beyond", "rms", "spread", "largest"), 0.0)
        count = {"count": tensor.numel(), "finite": tensor.numel(), "apart": 0}
        return {**note, **known, **count, "agrees": True, "ambiguous": True, "scales": []}
    mine = as_reals(tensor)
    mine = mine.float() if mine.element_size() == 1 else mine
    far = distance(mine, exact)
    # A result has no error against itself, in no part of its elements.
    scales = [] if itself else by_scale(mine, exact, far.rms)
    apart = far.apart + sum(scale.pop("apart") for scale in scales)
    return {
        **note,
        "error": far.near,
        "beyond": far.beyond,
        "rms": far.rms,
        "spread": far.spread,
        "largest": far.largest,
        "agrees": far.agrees,
        "count": far.count,
        "finite": far.count,
        "apart": far.apart,
        "scales": scales,
        "ambiguous": bool(apart) or not far.agrees,
    }


def _stored_truth(
    oracle: Oracle, request: dict[str, Any], inputs: Any, offset: int
) -> tuple[Any, list[Place | None], int]:
    """Stores the float64 outputs, and the inputs that the reference changes. Returns their
    tree, their places and the next offset."""
    if request["double"] and (slicing := oracle.truth.batches) is not None:
        try:
            return oracle.truth.by_slices(slicing, request["variant"], inputs, offset)
        except MemoryError:
            return None, [], offset
    tree, exacts = oracle.truth.outputs(request, inputs, offset)
    places: list[Place | None] = []
    try:
        for exact in exacts:
            (at,), offset = _exactly(oracle, exact, offset)
            places.append(at)
    except MemoryError:  # float64 needs more memory than the outputs
        return None, [], offset
    return tree, places, offset


def _exactly(oracle: Oracle, tensor: torch.Tensor, offset: int) -> tuple[list[Place], int]:
    """Stores an output in the arena: floating ones in float64, complex ones as pairs of
    float64."""
    exact = as_reals(tensor).double() if is_real(tensor.dtype) else tensor
    return oracle.arena.store([exact.contiguous()], offset)


def _moved(after: torch.Tensor, before: torch.Tensor) -> tuple[float, int]:
    """Root mean square of the changes that a call made, over the changed elements (infinity if
    there are none), and the number of these."""
    squares, count = 0.0, 0
    for late, early in pieces(as_reals(after), as_reals(before)):
        moved = late.double() - early.double()
        moved = moved[torch.isfinite(moved) & (moved != 0)]
        squares, count = squares + moved.square().sum().item(), count + moved.numel()
    return ((squares / count) ** 0.5 if count else INFINITE), count
