"""What a task allows as inputs, and how far honest results and those of lower precision lie from
the truth on each of them. Numbers only: what follows from them the judge decides.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from .conditioning import AGAIN, LARGEST, NEAR, WORSE, condition
from .distance import distance, pieces
from .families import (
    LAST,
    OWN,
    TIES,
    TRIED_FIRST,
    Labels,
    Traits,
    changeable,
    changes,
    exchangeable,
)
from .repeats import noisy
from .rounding import DOUBLE_UNIT, UNIT, Rounded
from .scales import within
from .sizes import forward
from .tensors import DTYPES, as_reals, flatten, is_real, outline, unflatten

if TYPE_CHECKING:
    from .oracle import Oracle

INITIAL = "init"
"""The weights that a model is made with."""
TF32_BITS = {torch.float32: 10}
LOWER: dict[str, dict[torch.dtype, int]] = {
    "strict": {torch.float64: 23, **TF32_BITS, torch.float16: 3, torch.bfloat16: 3},
    # TF32 and half precision have equally many bits: what lies below TF32 is bfloat16.
    "tf32": {torch.float64: 23, torch.float32: 7, torch.float16: 3, torch.bfloat16: 3},
}
"""Stored bits of fraction of the next lower precision: float32, TF32 or bfloat16, and an 8-bit
format (E4M3)."""
SLOW_SECONDS = 1.0
HOST_ELEMENTS, GPU_ELEMENTS = 1 << 23, 1 << 29
"""Where a call takes longer, or has more elements of inputs and outputs than these on its device,
only the first family is tried: each costs about ten calls."""
HOST_SECONDS, GPU_SECONDS = 8.0, 2.0
"""So long families are tried, on the host of its cores together; on a GPU nobody is measured
meanwhile. The first always is, and what there is no time for is told in ``untried``."""
LABEL_DRAWS = 3
"""Draws of which an integer tensor's values are known."""
SAMPLE = 1 << 20
"""Elements of an output of which the errors of other runs are taken."""
FEW = 16
"""Elements of an output of which all may be exact in lower precision by chance."""
DRAWS = 4
"""Other draws on which single numbers are looked at until they differ; of all else one tells."""
SEEDS = 0x5EED_5000
"""What is added to a seed for these."""
FLOAT32_NOISE = 2.0**-36
"""Relative error of a reference's own above which its float64 was made of float32 numbers."""
DOUBLE_TIMES = 4.0
"""Units roundoff by which each operator of an honest program in float64 may err."""


class NotAllowedError(Exception):
    """The task does not allow a family, for this reason."""


class Calibrator:
    """Tries the families on one task's reference."""

    def __init__(self, oracle: Oracle, profile: str, weights: str, *, double: bool) -> None:
        self.oracle = oracle
        self.weights = weights
        self.double = double
        self.tf32 = profile == "tf32"
        self.lower = LOWER["strict" if profile == "strict" else "tf32"]
        # Under `strict`, TF32's tensor cores are what tempts; the others' neighbour is bfloat16.
        self.products = profile == "strict"

    def calibrate(self, seed: int, others: bool) -> dict[str, Any]:
        """Notes on the task's own inputs and, with ``others``, on each family that it allows, in
        ``admitted``; why it does not allow the rest, in ``refused``; those that there was no time
        for, in ``untried``. Per output, and per input that the reference changes, in units of its
        root mean square: ``noise``, the largest error of the same-precision reference; ``honest``,
        of a program that sums in other orders; ``lower``, of one in the next lower precision, or
        None where that could not be found out; the same in ``scales`` by magnitude. ``between``, on
        the own inputs only, is how far two draws are apart, as a standard deviation. ``varies``
        says that not all elements have the value that the first has on the own inputs; ``compared``
        that the output counts on the family. ``weights`` are those that were asked for, or
        the initial ones where the reference goes wrong with the former."""
        oracle = self.oracle
        oracle.traits = traits = self._traits(seed)
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
        # On the host others may have its cores: what it takes counts, not how long it waits.
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
                refused.append({"family": family, "why": "it does not fit the memory"})
                oracle.settle()
        # Families that change no input are no loss.
        untried = [name for name in untried if changes(name, traits)]
        for i, family in enumerate(list(untried)):
            # Where little is tried, so much is that no output seems constant.
            if not _constant(own, admitted):
                break
            with contextlib.suppress(NotAllowedError):
                admitted.append(self._try(family, seed + 101 + i, own, traits))
            untried.remove(family)
        if names and (constant := _constant(own, admitted)):
            with contextlib.suppress(NotAllowedError):
                admitted.append(self._last(seed + 201, own, constant))
        found = {"admitted": admitted, "refused": refused, "untried": untried}
        return found | {"exact": not own.blind, "weights": self.weights}

    def reordered(self, seed: int, family: str) -> list[dict[str, Any]]:
        """Notes as of ``calibrate`` on this very draw, with the largest ``honest`` of several
        programs that sum in other orders; none where there is no truth in float64. One draw of a
        family does not show all that honest programs may be off by: some have a term beside which
        everything that is added later is rounded to one side."""
        try:
            looked, inputs = self._draw(family, seed)
        except NotAllowedError:
            return []
        if looked.blind:
            return []
        largest = [_honest(note) for note in looked.notes]
        for _ in range(AGAIN):
            for double in looked.precisions():
                looked.note("honest", self._reordered(inputs, family, double), double=double)
            pairs = zip(largest, map(_honest, looked.notes), strict=True)
            largest = [[max(a, b) for a, b in zip(*each, strict=True)] for each in pairs]
        for note, (whole, *classes) in zip(looked.notes, largest, strict=True):
            note["honest"] = whole
            for each, error in zip(note["scales"], classes, strict=True):
                each["honest"] = error
        self.oracle.settle()
        return looked.notes

    def _own(self, seed: int) -> Looked:
        """The task's own inputs, with weights on which honest programs agree as well as on the
        initial ones. These are looked at only where there is a doubt."""
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

    def _traits(self, seed: int) -> dict[int, Traits | Labels]:
        tensors: list[torch.Tensor] = []
        flatten(self.oracle.reference.inputs(seed), tensors)
        known = {i: changeable(each) or exchangeable(each) for i, each in enumerate(tensors)}
        found = {i: traits for i, traits in known.items() if traits is not None}
        if any(isinstance(traits, Labels) for traits in found.values()):
            # One draw seldom has all that an index may be.
            for number in range(1, LABEL_DRAWS):
                others: list[torch.Tensor] = []
                flatten(self.oracle.drawn_inputs(seed + SEEDS - number), others)
                for i, traits in found.items():
                    if isinstance(traits, Labels):
                        found[i] = Labels(
                            torch.unique(torch.cat([traits.values, others[i].view(-1)]))
                        )
        return found

    def _try(
        self, family: str, seed: int, own: Looked, traits: dict[int, Traits | Labels]
    ) -> dict[str, Any]:
        if not traits:
            raise NotAllowedError("no input is a quantity that may change")
        if not changes(family, traits):
            raise NotAllowedError("it changes no input")
        if family in TIES and not all(note["real"] for note in own.notes):
            raise NotAllowedError("equal elements have no order, which an output would show")
        looked = self._look(family, seed, own)
        looked.must_be_like(own)
        return {"family": family, "notes": looked.notes}

    def _last(self, seed: int, own: Looked, constant: set[int]) -> dict[str, Any]:
        """Numbers that are not finite, for these outputs alone."""
        looked = self._look(LAST, seed, own)
        if looked.tree != own.tree or looked.shapes != own.shapes:
            raise NotAllowedError("the outputs are built differently")
        for i, note in enumerate(looked.notes):
            note["compared"] = i in constant and note["varies"]
        if not any(note["compared"] for note in looked.notes):
            raise NotAllowedError("it makes no output vary")
        return {"family": LAST, "notes": looked.notes}

    def _vary(self, own: Looked, seed: int) -> None:
        """Finds out how far other draws of the own inputs are from the first, and whether every
        draw has outputs that vary: one that few draws have flags in may as well be constant."""
        for number in range(DRAWS):
            other = self._truth(seed + SEEDS + number)
            if other is None or other.shapes != own.shapes:
                return
            for i, note in enumerate(own.notes):
                differs = _differs(other.truths[i], own.first[i])
                single = own.truths_count[i] == 1
                note["varies"] = note["varies"] or differs if single else note["varies"] and differs
                # Where no input ever differs, a draw tells nothing.
                if note["real"] and note["rms"] and number == 0 and not self.oracle.fixed:
                    note["between"] = _apart(own.samples[i], other.samples[i]) / note["rms"]
            # A single number may be the same by chance.
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
        """One draw, of which nothing but the truths is known yet, and its inputs."""
        told = self.oracle.expected(
            {"variant": self.weights, "seed": seed, "family": family, "double": self.double}
        )
        if told["void"]:
            raise NotAllowedError(f"the reference raises: {told['void']}")
        views = [self.oracle.arena.view(at) for at in told["inputs"]["tensors"]]
        inputs = unflatten(told["inputs"]["tree"], views)
        return Looked(told, self._truths(told), own), inputs

    def _look(self, family: str, seed: int, own: Looked | None = None) -> Looked:
        oracle = self.oracle
        looked, inputs = self._draw(family, seed, own)
        if oracle.draws:
            call = partial(oracle.given, self.weights, inputs)
            if noisy(call, call(1), call(2)):
                raise NotAllowedError("the reference is random there")
        if self.tf32:
            # Also on a GPU: a library takes TF32 where that is faster, and what it computes in
            # float32 says nothing of how far off a product in TF32 may be.
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
        """Finds out how ill-conditioned the reference is by several programs, of none of which
        roundings add up as those of equal terms do."""
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
        """The outputs under a mode; None where it does not run so, or memory is short."""
        with contextlib.suppress(Exception), mode:
            given, _, copies = forward(self.oracle.models[variant], inputs, 1)
            tensors: list[torch.Tensor] = []
            flatten(given, tensors)
            return tensors + self.oracle.after(copies)
        self.oracle.settle()
        return None

    def _reordered(
        self, inputs: Any, family: str, double: bool, *, one_sign: bool = True
    ) -> list[torch.Tensor] | None:
        with contextlib.suppress(Exception):
            # Float64 has no truth beyond it that would show the reference's own error: whatever is
            # not exact errs, and by more than libraries do.
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


class Looked:
    """One draw: the truths of the outputs and of the inputs that are changed, and notes on them."""

    def __init__(
        self, told: dict[str, Any], truths: list[torch.Tensor], own: Looked | None = None
    ) -> None:
        self.tree = outline(told["outputs"]["tree"])
        self.truths = truths
        self.blind = any(note["truth"] != "float64" for note in told["notes"])
        self.shapes = [tuple(truth.shape) for truth in truths]
        self.truths_count = [truth.numel() for truth in truths]
        self.samples = [truth.reshape(-1)[:SAMPLE].clone() for truth in truths]
        self.first = own.first if own else [s[:1].clone() for s in self.samples]
        self.notes: list[dict[str, Any]] = []
        self.finite: list[float] = []
        for note, truth, first in zip(told["notes"], truths, self.first, strict=True):
            dtype = DTYPES[note["dtype"]]
            scale = note["rms"]
            self.finite.append(note["finite"] / max(truth.numel(), 1))
            self.notes.append(
                {
                    "real": is_real(dtype),
                    "double": dtype in (torch.float64, torch.complex128),
                    "bits": note["dtype"],
                    "agrees": note["agrees"] and not note["apart"],
                    "rms": scale,
                    "largest": note["largest"] / scale if scale else 0.0,
                    "noise": note["beyond"] / scale if scale else 0.0,
                    "honest": None,
                    "lower": None,
                    "between": None,
                    "varies": _differs(truth, first),
                    "compared": True,
                    "condition": 0.0,
                    "scales": [
                        {
                            "below": each["below"],
                            "rms": each["rms"],
                            "noise": each["beyond"] / each["rms"],
                            "honest": 0.0,
                            "lower": None,
                        }
                        for each in note["scales"]
                    ],
                }
            )

    def precisions(self) -> list[bool]:
        """Whether outputs are to be as exact as float64, as float32, or some as the one and some as
        the other."""
        real = [note for note in self.notes if note["real"]]
        return sorted({self._double(note) for note in real}) or [False]

    def _double(self, note: dict[str, Any]) -> bool:
        # A reference whose float64 output was made of float32 numbers shows by its own error.
        return note["double"] and note["noise"] < FLOAT32_NOISE

    def note(
        self, what: str, given: list[torch.Tensor] | None, *, double: bool | None = None
    ) -> None:
        """Notes the errors of another run, of all outputs or of those in double or not."""
        if given is None or [tuple(as_reals(g).shape) for g in given] != self.shapes:
            return
        for note, tensor, truth in zip(self.notes, given, self.truths, strict=True):
            if double is not None and note["real"] and self._double(note) != double:
                continue
            if note["real"] and note["rms"] and tensor.numel():
                mine, exact = (as_reals(t).reshape(-1)[:SAMPLE] for t in (tensor, truth))
                mine = mine.float() if mine.element_size() == 1 else mine
                note[what] = distance(mine, exact).beyond / note["rms"]
                ends = [each["below"] for each in note["scales"]]
                found = {each["below"]: each for each in within(mine, exact, ends)}
                for each in note["scales"]:
                    if each["below"] in found:
                        each[what] = found[each["below"]]["beyond"] / each["rms"]
            elif what == "honest" and not note["real"] and not torch.equal(tensor, truth):
                note[what] = 1.0

    def condition(self, given: list[torch.Tensor] | None, *, double: bool | None = None) -> None:
        """Notes how ill-conditioned the reference is by another run, as ``note`` does errors."""
        if given is None or [tuple(as_reals(g).shape) for g in given] != self.shapes:
            return
        for note, tensor, truth in zip(self.notes, given, self.truths, strict=True):
            mine = double is None or self._double(note) == double
            if note["real"] and mine:
                tensor = as_reals(tensor)
                tensor = tensor.float() if tensor.element_size() == 1 else tensor
                note["condition"] = max(note["condition"], condition(tensor, truth))

    def worse(self, own: Looked, i: int) -> float:
        """How many times as ill-conditioned as on the own inputs an output is."""
        unit = _unit(self.notes[i])
        return self.notes[i]["condition"] / max(own.notes[i]["condition"], unit)

    def doubtful(self, own: Looked) -> bool:
        """Whether some output may be too ill-conditioned."""
        return len(own.notes) == len(self.notes) and any(
            note["real"] and self.worse(own, i) * NEAR > WORSE for i, note in enumerate(self.notes)
        )

    def rounded_by(self, bits: dict[torch.dtype, int]) -> None:
        """What lower precision gives is rounded to so many bits. Of few numbers all may be near to
        one that has no more, by chance."""
        for note, count in zip(self.notes, self.truths_count, strict=True):
            kept = bits.get(DTYPES[note["bits"]])
            if note["lower"] and kept is not None and count <= FEW:
                note["lower"] = max(note["lower"], 2.0 ** -(kept + 2))

    def is_suspect(self) -> bool:
        """Whether honest programs may differ here for no other reason than the weights."""
        each = zip(self.notes, self.finite, self.truths_count, strict=True)
        return any(
            not note["agrees"]
            or finite < 1
            or _error(note) > WORSE * WORSE * _unit(note)
            or (count > 1 and not note["varies"])
            for note, finite, count in each
            if note["real"]
        )

    def worse_than(self, own: Looked) -> bool:
        """Whether the reference goes wrong here, and less so on ``own``."""
        if self.tree != own.tree or self.shapes != own.shapes:
            return True
        for i, (mine, theirs) in enumerate(zip(self.notes, own.notes, strict=True)):
            if not mine["real"]:
                continue
            if (theirs["agrees"] and not mine["agrees"]) or self.finite[i] < own.finite[i]:
                return True
            if theirs["varies"] and not mine["varies"]:
                return True
            if _error(mine) > WORSE * max(_error(theirs), _unit(theirs)):
                return True
        return False

    def must_be_like(self, own: Looked) -> None:
        """Raises NotAllowedError where these inputs mean something else to the reference than the
        task's own, or honest programs would differ on them."""
        if self.tree != own.tree or self.shapes != own.shapes:
            raise NotAllowedError("the outputs are built differently")
        for i, (mine, theirs) in enumerate(zip(self.notes, own.notes, strict=True)):
            if not mine["real"]:
                if mine["honest"]:
                    raise NotAllowedError(f"output {i} jumps where honest programs differ")
                continue
            if not mine["agrees"] or self.finite[i] < own.finite[i]:
                raise NotAllowedError(f"output {i} is not finite where it is on its own inputs")
            if theirs["varies"] and not mine["varies"]:
                raise NotAllowedError(f"output {i} is constant")
            error = _error(mine)
            far = not mine["scales"] and error > LARGEST + WORSE * (theirs["honest"] or 0.0)
            if (worse := self.worse(own, i)) > WORSE or far:
                text = f"honest error {error:.1e}, {worse:.0f} times the usual one"
                raise NotAllowedError(f"output {i} is ill-conditioned: {text}")


def _error(note: dict[str, Any]) -> float:
    """Of an honest program."""
    return max(note["noise"], note["honest"] or 0.0)


def _unit(note: dict[str, Any]) -> float:
    return torch.finfo(DTYPES[note["bits"]]).eps / 2


def _constant(own: Looked, admitted: list[dict[str, Any]]) -> set[int]:
    """The outputs that are no floating ones and have one value on all inputs so far."""
    return {
        i
        for i, note in enumerate(own.notes)
        if not note["real"] and not any(each["notes"][i]["varies"] for each in admitted)
    }


def _honest(note: dict[str, Any]) -> list[float]:
    """The error of an honest program on a whole output, and on each of its classes."""
    return [note["honest"] or 0.0, *(each["honest"] for each in note["scales"])]


def _differs(truth: torch.Tensor, first: torch.Tensor) -> bool:
    """Whether any element has another value than ``first``. No number is no value."""
    if not first.numel():
        return truth.numel() > 0
    return any(bool(((t != first) & (t == t)).any()) for (t,) in pieces(truth) if t.numel())


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The standard deviation of which two draws of the same elements show the difference."""
    apart = one - other
    apart = apart[torch.isfinite(apart)]
    return (apart.square().mean().item() / 2) ** 0.5 if apart.numel() else 0.0
