"""What the oracle finds out about a reference when a task is opened: forms of inputs and outputs,
time, memory, and whether candidates can be judged against it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from . import precision
from .computes import Computes
from .forms import Form, carried, varying
from .repeats import SAME, Given, alike, must_repeat, same
from .sizes import LARGE_BYTES, Allocated, forward
from .tensors import flatten, place
from .unsaved import Another

if TYPE_CHECKING:
    from .oracle import Oracle

DRAWS, FURTHER_DRAWS = 3, 5
"""Samples of inputs that are compared in full when a task is opened, and further ones of small
tasks whose structure is compared."""
DRAWN = 0x5EED_3000
"""Offset added to a seed for these."""
SMALL_ELEMENTS = 1 << 20
LOOKS = 3
"""Calls on a GPU of which the fastest is the time per call: other processes compute meanwhile."""


def properties(oracle: Oracle, seed: int, other: Another) -> dict[str, Any]:
    """Runs the reference a few times and returns the properties for ``open``. Refuses a
    reference that no candidate can be judged against."""
    inputs = oracle.reference.inputs(seed)
    carried(inputs, "get_inputs()")
    oracle.form = Form(inputs)
    taken: list[torch.Tensor] = []
    input_tree = flatten(inputs, taken)
    ran = oracle.call("init", inputs, 1)
    given: list[torch.Tensor] = []
    tree, form = flatten(ran.outputs, given), Form(ran.outputs)
    views = ran.views
    kept = not oracle.changes and all(at is None for at in views)
    watched = not any(t.is_inference() for t in taken)
    oracle.copies = not (kept and watched) or sum(t.nbytes for t in taken) < LARGE_BYTES
    this = Given(tree, given + ran.after)
    oracle.draws = must_repeat(this, lambda seed: oracle.given("init", inputs, seed))
    _must_be_saved(oracle, inputs, given, other)
    oracle.elements = sum(t.numel() for t in (*taken, *given))
    oracle.dtypes = [t.dtype for t in given]
    outputs = {"tree": tree, "tensors": [place(t, None) for t in given]}
    # What follows takes as much memory again.
    del ran, this
    given.clear()
    _must_be_alike(oracle, seed, (input_tree, taken), (tree, form))
    oracle.seconds = min(_time(oracle, inputs) for _ in range(LOOKS if oracle.cuda else 1))
    with Allocated() as allocated, Computes() as computes:
        forward(oracle.models["init"], inputs, 1, copy=oracle.copies)
    oracle.minds = computes.minds
    oracle.settle()
    held: list[torch.Tensor] = []
    init_tree = flatten(oracle.reference.init, held)
    return {
        "init": {"tree": init_tree, "tensors": [place(t, None) for t in held]},
        "forward_seconds": oracle.seconds,
        "allocated_bytes": allocated.bytes,
        "peak_bytes": allocated.peak,
        "inputs": {"tree": input_tree, "tensors": [place(t, None) for t in taken]},
        "outputs": outputs,
        "aliases_input": any(at is not None for at in views),
        "mutates_input": bool(oracle.changes),
        "changed": [place(taken[i], None) for i in sorted(oracle.changes)],
        "changes": sorted(oracle.changes),
        "computes": computes.found,
        "only_views": bool(views) and all(at is not None for at in views) and not oracle.changes,
        "fixed_inputs": oracle.fixed,
        "state": [place(t, None) for t in oracle.models["init"].state_dict().values()],
        "versions": precision.fingerprint(),
    }


def _must_be_saved(oracle: Oracle, inputs: Any, given: list[torch.Tensor], other: Another) -> None:
    """Refuses a reference whose results depend on random values outside its ``state_dict``."""
    if other.spare is None:
        return
    model = oracle.reference.move(other.spare)
    outputs, _, _ = forward(model, inputs, 1, copy=oracle.copies)
    found: list[torch.Tensor] = []
    flatten(outputs, found)
    as_many = len(found) == len(given)
    if not as_many or not all(alike(a, b, SAME) for a, b in zip(given, found, strict=True)):
        raise other.refusal()


def _must_be_alike(oracle: Oracle, seed: int, taken: Any, given: Any) -> None:
    """Refuses a task whose samples differ in structure. Records which inputs are equal in all
    samples."""
    (input_tree, tensors), (tree, form) = taken, given
    oracle.same = [True] * len(tensors)
    further = FURTHER_DRAWS if oracle.elements <= SMALL_ELEMENTS else 0
    for i in range(1, DRAWS + further):
        drawn: list[torch.Tensor] = []
        inputs = oracle.drawn_inputs(seed + DRAWN + i)
        built_alike = flatten(inputs, drawn) == input_tree
        pairs = zip(oracle.same, tensors, drawn, strict=True)
        oracle.same = [is_so and built_alike and same(a, b) for is_so, a, b in pairs]
        if i < DRAWS:
            outputs = oracle.call("init", inputs, 1).outputs
            Form(outputs).must_be(form, "what forward returns")
            if flatten(outputs, []) != tree:
                raise varying("forward returns a number or a text that depends on its inputs")
            del outputs
        # The next sample takes as much memory again.
        del inputs, drawn, pairs


def _time(oracle: Oracle, inputs: Any) -> float:
    started = time.perf_counter()
    oracle.call("init", inputs, 1)
    oracle.settle()
    return time.perf_counter() - started
