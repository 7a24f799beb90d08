"""Finds which inputs a task allows, and measures the errors of honest and lower-precision results
against the truth on each. Returns numbers only; the judge decides."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from .clusters import Clusters
from .conditioning import AGAIN, MOST, SHARE
from .constants import Constants
from .distance import distance
from .families import (
    A_FEW_SLICES,
    CLUSTERS,
    CONSTANTS,
    ENDS,
    FAINTLY,
    LAST,
    OWN,
    SLICES,
    STRUCTURES,
    TIES,
    TRIED_FIRST,
    Labels,
    Other,
    Traits,
    changeable,
    changes,
    exchangeable,
    in_order,
)
from .looked import Looked, NotAllowedError, apart, differs, honest
from .plain import workable
from .repeats import noisy
from .rounding import DOUBLE_UNIT, UNIT, Rounded, part_equals
from .sizes import forward
from .slices import Slices
from .structures import Ends, Structures
from .tensors import as_reals, flatten, to_double, unflatten

if TYPE_CHECKING:
    from .oracle import Oracle

INITIAL = "init"
"""The model's initial weights."""
BUFFERS = "buffers"
"""The initial weights with other values in buffers."""
TF32_BITS = {torch.float32: 10}
LOWER: dict[str, dict[torch.dtype, int]] = {
    "strict": {torch.float64: 23, **TF32_BITS, torch.float16: 3, torch.bfloat16: 3},
    # TF32 and half precision have the same number of bits; below TF32 is bfloat16.
    "tf32": {torch.float64: 23, torch.float32: 7, torch.float16: 3, torch.bfloat16: 3},
}
"""Stored fraction bits of the next lower precision: float32, TF32 or bfloat16, and an 8-bit format
(E4M3)."""
SLOW_SECONDS = 1.0
HOST_ELEMENTS, GPU_ELEMENTS = 1 << 23, 1 << 29
"""If a call takes longer than ``SLOW_SECONDS``, or has more elements of inputs and outputs than
these on its device, only the first family is tried: each family costs about ten calls."""
HOST_SECONDS, GPU_SECONDS = 10.0, 2.0
"""Time limit of trying families. On the host it counts processor time; on a GPU no process is
measured meanwhile. The first family is always tried; ``untried`` lists those without time."""
LABEL_DRAWS = 3
"""Samples of inputs from which the values of an integer tensor are collected."""
DRAWS = 4
"""Further samples of inputs that are compared until single-element outputs differ. Other outputs
need one."""
SEEDS = 0x5EED_5000
"""Offset added to a seed for these."""
INDEX = "int64"
"""Dtype of indices. Among equal elements, an honest program may return another index."""
WAY_SEEDS = 0x5EED_7000
"""Offset added to a seed per way of changing inputs."""
DOUBLE_TIMES = 4.0
"""Error of each operator of an honest float64 program, in units of roundoff."""
APART = 1e-6
"""Change of an output, relative to its root mean square, that shows a dependence on the order of
equal elements."""


class Calibrator:
    """Tries the families on one task's reference."""

    def __init__(self, oracle: Oracle, profile: str, weights: str, *, double: bool) -> None:
        self.oracle = oracle
        self.weights = weights
        self.double = double
        self.tf32 = profile == "tf32"
        self.lower = LOWER["strict" if profile == "strict" else "tf32"]
        # Under `strict` the tempting lower precision is TF32's tensor cores; under other profiles
        # it is bfloat16.
        self.products = profile == "strict"

    def calibrate(self, seed: int, others: bool) -> dict[str, Any]:
        """Measures the task's own inputs and, with ``others``, each family. ``admitted``: the
        families that the task allows. ``refused``: the reasons for the others. ``untried``: the
        families without time.

        Per output, and per input that the reference changes, in units of its root mean square:
        ``noise`` is the largest error of the same-precision reference; ``honest`` that of a program
        with other summation orders; ``lower`` that of a program in the next lower precision, or
        None if it is unknown; ``scales`` has the same by magnitude. ``between``, on the own inputs
        only, is the standard deviation between two samples. ``varies``: not all elements equal the
        first element on the own inputs. ``compared``: the output counts on the family.

        ``weights``: the requested weights, or the initial ones if the reference fails with the
        requested ones. ``buffers``: whether its buffers allow other values.
        """
        oracle = self.oracle
        tensors: list[torch.Tensor] = []
        flatten(oracle.reference.inputs(seed), tensors)
        tensors = [workable(tensor) for tensor in tensors]
        oracle.traits = traits = self._traits(seed, tensors)
        oracle.others = {
            SLICES: Slices.of(tensors, traits),
            CONSTANTS: Constants.of(tensors, oracle.same, traits),
            CLUSTERS: Clusters.of(tensors, traits),
            STRUCTURES: Structures.of(tensors, traits),
            ENDS: Ends.of(tensors, traits, oracle.source),
        }
        tensors.clear()
        own = self._own(seed)
        self._vary(own, seed)
        admitted: list[dict[str, Any]] = [{"family": OWN, "notes": own.notes}]
        refused: list[dict[str, str]] = []
        names, untried = list(TRIED_FIRST), []
        most = GPU_ELEMENTS if oracle.cuda else HOST_ELEMENTS
        if not others or own.blind:
            names = []
        alone = oracle.seconds > SLOW_SECONDS or oracle.elements > most
        patience = GPU_SECONDS if oracle.cuda else HOST_SECONDS
        # Other processes may use the host's cores, so the limit counts processor time instead of
        # waiting.
        clock = time.perf_counter if oracle.cuda else time.process_time
        started = clock()
        for i, family in enumerate(names):
            if i and (alone or clock() - started > patience):
                untried.append(family)
                continue
            try:
                admitted.append(self._try(family, seed + 1 + i, own, traits))
            except NotAllowedError as error:
                refused.append({"family": family, "why": str(error)[:400]})
            except torch.OutOfMemoryError:
                refused.append({"family": family, "why": "it does not fit into memory"})
                oracle.settle()
        # Families that change no input are not a loss.
        untried = [name for name in untried if self._changes(name, traits)]
        for i, family in enumerate(list(untried)):
            # Even without time left, try further families until no output seems constant.
            if not _constant(own, admitted):
                break
            with contextlib.suppress(NotAllowedError):
                admitted.append(self._try(family, seed + 101 + i, own, traits))
            untried.remove(family)
        if names and (constant := _constant(own, admitted)):
            with contextlib.suppress(NotAllowedError):
                admitted.append(self._last(seed + 201, own, constant))
        elif names and oracle.minds:
            with contextlib.suppress(NotAllowedError):
                admitted.append(self._try(LAST, seed + 202, own, traits))
        found = {"admitted": admitted, "refused": refused, "untried": untried}
        buffers = others and self._other_buffers(seed, own)
        return found | {"exact": not own.blind, "weights": self.weights, "buffers": buffers}

    def reordered(self, seed: int, family: str) -> dict[str, Any]:
        """Measures this family with this seed, as ``calibrate`` does. ``notes`` has the largest
        ``honest`` error of several programs with other summation orders, and ``usual`` their mean.
        Both are empty if there is no float64 truth. ``astray``: on some slice the programs are too
        far apart to judge.

        One seed per family does not show the largest honest error: other seeds have larger
        elements, or a term that makes all later additions round in one direction.
        """
        nothing: dict[str, Any] = {"notes": [], "usual": [], "astray": False}
        try:
            looked, inputs = self._draw(family, seed)
        except NotAllowedError:
            return nothing
        if looked.blind:
            return nothing
        seen: list[list[list[float]]] = []
        for _ in range(AGAIN):
            for double in looked.precisions():
                looked.note("honest", self._reordered(inputs, family, double), double=double)
            seen.append([honest(note) for note in looked.notes])
        self.oracle.settle()
        found = {"notes": _with(looked, seen, max), "usual": _with(looked, seen, fmean)}
        return found | {"astray": family in A_FEW_SLICES and looked.astray()}

    def _own(self, seed: int) -> Looked:
        """The task's own inputs, with weights on which honest programs agree as well as on the
        initial ones. The initial weights are tried only in case of doubt."""
        if self.weights == INITIAL:
            return self._look(OWN, seed)
        asked = None
        try:
            asked = self._look(OWN, seed)
            if not asked.is_suspect():
                return asked
        except torch.OutOfMemoryError:
            raise
        except Exception:
            self.oracle.settle()
        self.weights, weights = INITIAL, self.weights
        own = self._look(OWN, seed)
        if asked is not None and not asked.worse_than(own):
            self.weights = weights
            return asked
        return own

    def _other_buffers(self, seed: int, own: Looked) -> bool:
        if BUFFERS not in self.oracle.models or own.blind:
            return False
        self.weights, weights = BUFFERS, self.weights
        looked = None
        with contextlib.suppress(Exception):
            looked = self._look(OWN, seed)
        self.weights = weights
        self.oracle.settle()
        return looked is not None and not (looked.is_suspect() and looked.worse_than(own))

    def _traits(self, seed: int, tensors: list[torch.Tensor]) -> dict[int, Traits | Labels]:
        known = {i: changeable(each) or exchangeable(each) for i, each in enumerate(tensors)}
        found = {i: traits for i, traits in known.items() if traits is not None}
        drawn = {i: [tensors[i]] for i, traits in found.items() if isinstance(traits, Labels)}
        if drawn:
            # One sample seldom contains all values that an index may have.
            for number in range(1, LABEL_DRAWS):
                others: list[torch.Tensor] = []
                flatten(self.oracle.drawn_inputs(seed + SEEDS - number), others)
                for i, traits in list(found.items()):
                    if isinstance(traits, Labels):
                        found[i] = traits.beside(others[i])
                        drawn[i].append(workable(others[i]))
            # A few bounds may be sorted by coincidence, but not in every sample.
            for i, seen in drawn.items():
                if all(in_order(each) for each in seen):
                    del found[i]
        return found

    def _changes(self, family: str, traits: dict[int, Traits | Labels]) -> bool:
        other = self.oracle.others.get(family)
        return changes(family, traits) if other is None else bool(other.known)

    def _try(
        self, family: str, seed: int, own: Looked, traits: dict[int, Traits | Labels]
    ) -> dict[str, Any]:
        if (other := self.oracle.others.get(family)) is not None:
            return self._try_ways(family, other, seed, own)
        if not traits:
            raise NotAllowedError("the task has no input that a family may change")
        if not changes(family, traits):
            raise NotAllowedError("it changes no input")
        if family in TIES and not all(note["real"] for note in own.notes):
            raise NotAllowedError("an output may depend on the order of equal elements")
        before = self._truth(seed) if family == FAINTLY else None
        looked = self._look(family, seed, own)
        looked.must_be_like(own)
        if family == FAINTLY:
            looked.must_scale_with(before)
        return {"family": family, "notes": looked.notes}

    def _try_ways(self, family: str, other: Other, seed: int, own: Looked) -> dict[str, Any]:
        """Tries a family's ways of changing inputs, and returns the first that the task allows."""
        ordered = any(note["bits"] == INDEX for note in own.notes)
        refused = None
        for way in other.ways():
            other.way = way
            if ordered and other.ties():
                continue
            try:
                looked = self._look(family, seed + WAY_SEEDS * way, own)
                looked.must_be_like(own)
                if other.ties():
                    self._must_not_order_equals(family, seed + WAY_SEEDS * way, looked)
                return {"family": family, "notes": looked.notes}
            except NotAllowedError as error:
                refused = refused or error
        raise refused or NotAllowedError("it changes no input")

    def _must_not_order_equals(self, family: str, seed: int, looked: Looked) -> None:
        """Raises NotAllowedError where the outputs depend on the order of equal elements, as in a
        sort that carries other values along: honest programs may order them differently."""
        oracle = self.oracle
        taken: list[torch.Tensor] = []
        tree = flatten(to_double(oracle.draw(seed, family)), taken)
        for i, known in oracle.traits.items():
            if isinstance(known, Traits):
                part_equals(as_reals(taken[i]))
        given = oracle.truth.under(contextlib.nullcontext(), unflatten(tree, taken), self.weights)
        if given is None or [tuple(as_reals(g).shape) for g in given] != looked.shapes:
            raise NotAllowedError("the reference fails if equal elements differ slightly")
        pairs = zip(given, looked.truths, looked.notes, strict=True)
        for i, (tensor, truth, note) in enumerate(pairs):
            apart = distance(as_reals(tensor).double().reshape(-1), truth.double().reshape(-1))
            if apart.error > APART * note["rms"] or not apart.agrees:
                raise NotAllowedError(f"output {i} depends on the order of equal elements")

    def _last(self, seed: int, own: Looked, constant: set[int]) -> dict[str, Any]:
        """Measures non-finite inputs, for these outputs alone."""
        looked = self._look(LAST, seed, own)
        if looked.tree != own.tree or looked.shapes != own.shapes:
            raise NotAllowedError("the outputs are built differently")
        for i, note in enumerate(looked.notes):
            note["compared"] = i in constant and note["varies"]
        if not any(note["compared"] for note in looked.notes):
            raise NotAllowedError("no output varies on it")
        return {"family": LAST, "notes": looked.notes}

    def _vary(self, own: Looked, seed: int) -> None:
        """Measures the distance between samples of the own inputs, and whether outputs vary in
        every sample. An output of flags that few samples set counts as constant."""
        for number in range(DRAWS):
            other = self._truth(seed + SEEDS + number)
            if other is None or other.shapes != own.shapes:
                return
            for i, note in enumerate(own.notes):
                other_values = differs(other.truths[i], own.first[i])
                single, varies = own.truths_count[i] == 1, note["varies"]
                note["varies"] = varies or other_values if single else varies and other_values
                # If no input ever differs, a second sample shows nothing.
                if note["real"] and note["rms"] and number == 0 and not self.oracle.fixed:
                    note["between"] = apart(own.samples[i], other.samples[i]) / note["rms"]
            # A single number may be equal by coincidence.
            if all(n["varies"] or c != 1 for n, c in zip(own.notes, own.truths_count, strict=True)):
                return

    def _truth(self, seed: int) -> Looked | None:
        told = self.oracle.expected(
            {"variant": self.weights, "seed": seed, "family": OWN, "double": self.double}
        )
        return Looked(told, self._truths(told))

    def _truths(self, told: dict[str, Any]) -> list[torch.Tensor]:
        places = [*told["outputs"]["tensors"], *(each["truth"] for each in told["after"])]
        return [self.oracle.arena.view(at) for at in places]

    def _draw(self, family: str, seed: int, own: Looked | None = None) -> tuple[Looked, Any]:
        """Samples inputs and computes their truths; no errors are measured yet."""
        told = self.oracle.expected(
            {"variant": self.weights, "seed": seed, "family": family, "double": self.double}
        )
        if told["void"]:
            raise NotAllowedError(f"the reference raises: {told['void']}")
        views = [self.oracle.arena.view(at) for at in told["inputs"]["tensors"]]
        inputs = unflatten(told["inputs"]["tree"], views)
        share = MOST if family in A_FEW_SLICES else SHARE
        return Looked(told, self._truths(told), own, share), inputs

    def _look(self, family: str, seed: int, own: Looked | None = None) -> Looked:
        oracle = self.oracle
        looked, inputs = self._draw(family, seed, own)
        if oracle.draws:
            call = partial(oracle.given, self.weights, inputs)
            if noisy(call, call(1), call(2)):
                raise NotAllowedError("the reference is random on these inputs")
        if self.tf32:
            # Also on a GPU: a library uses TF32 only where that is faster, so its float32 result
            # does not show the error of a TF32 product.
            mode = Rounded(TF32_BITS, products=True)
            looked.note("tf32", self._run(self.weights, inputs, mode))
            for note in looked.notes:
                for each in (note, *note["scales"]):
                    each["noise"] = max(each["noise"], each.pop("tf32", None) or 0.0)
        if not looked.blind:
            looked.condition(self._run(self.weights, inputs, contextlib.nullcontext()))
            for double in looked.precisions():
                given = self._reordered(inputs, family, double)
                looked.note("honest", given, double=double)
                looked.condition(given, double=double)
            given = None
            if own is not None and looked.doubtful(own):
                self._look_again(looked, inputs, family)
        mode = Rounded(self.lower, products=self.products)
        given = self._run(self.weights, inputs, mode)
        if given is not None and self.products and not mode.products:
            given = None  # before the next run
            given = self._run(self.weights, inputs, Rounded(self.lower, products=False))
        looked.note("lower", given)
        if not self.products or not mode.products:
            looked.rounded_by(self.lower)
        given = None
        oracle.settle()
        return looked

    def _look_again(self, looked: Looked, inputs: Any, family: str) -> None:
        """Measures the reference's condition with several programs whose rounding errors cancel."""
        seen: list[list[float]] = []
        for _ in range(AGAIN):
            for note in looked.notes:
                note["condition"] = 0.0
            for double in looked.precisions():
                given = self._reordered(inputs, family, double, one_sign=False)
                looked.condition(given, double=double)
            seen.append([note["condition"] for note in looked.notes])
        for note, values in zip(looked.notes, zip(*seen, strict=True), strict=True):
            note["condition"] = sorted(values)[len(values) // 2]

    def _run(self, variant: str, inputs: Any, mode: Any) -> list[torch.Tensor] | None:
        """The outputs under a mode. None if it fails under the mode, or if memory is exhausted."""
        with contextlib.suppress(Exception), mode:
            oracle = self.oracle
            given, _, copies = forward(oracle.models[variant], inputs, 1, copy=oracle.copies)
            tensors: list[torch.Tensor] = []
            flatten(given, tensors)
            return tensors + oracle.after(copies)
        self.oracle.settle()
        return None

    def _reordered(
        self, inputs: Any, family: str, double: bool, *, one_sign: bool = True
    ) -> list[torch.Tensor] | None:
        with contextlib.suppress(Exception):
            # No format beyond float64 shows the reference's own error. So every inexact operator
            # errs, by more than libraries do.
            times = DOUBLE_TIMES * DOUBLE_UNIT / UNIT if double else 1.0
            ties = family in TIES
            return self.oracle.truth.astray(
                inputs,
                times,
                self.weights,
                ties=ties,
                everywhere=double,
                one_sign=one_sign,
            )
        self.oracle.settle()
        return None


def _constant(own: Looked, admitted: list[dict[str, Any]]) -> set[int]:
    """Non-floating outputs with one value on all inputs so far."""
    return {
        i
        for i, note in enumerate(own.notes)
        if not note["real"] and not any(each["notes"][i]["varies"] for each in admitted)
    }


def _with(
    looked: Looked, seen: list[list[list[float]]], of: Callable[[tuple[float, ...]], float]
) -> list[dict[str, Any]]:
    """The notes with ``honest`` replaced by a reduction (``of``) over the honest errors of several
    runs, per output and class."""
    notes = copy.deepcopy(looked.notes)
    for note, runs in zip(notes, zip(*seen, strict=True), strict=True):
        note["honest"], *classes = (of(errors) for errors in zip(*runs, strict=True))
        for each, error in zip(note["scales"], classes, strict=True):
            each["honest"] = error
    return notes
