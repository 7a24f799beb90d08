"""Measurements on one sample of inputs: the truths of the outputs, and the errors of other
programs."""

from __future__ import annotations

from typing import Any

import torch

from .conditioning import LARGEST, MOST, NEAR, SHARE, WORSE, condition
from .distance import distance, pieces
from .scales import within
from .tensors import DTYPES, as_reals, is_real, outline

SAMPLE = 1 << 20
"""Elements of an output whose errors in other runs are measured."""
FEW = 16
"""An output with at most this many elements may coincidentally be exact in lower precision."""
FLOAT32_NOISE = 2.0**-36
"""Relative error of the reference above which its float64 result was computed from float32
numbers."""


PROPORTIONAL = 1e-4
"""Root mean square difference, relative to the output, up to which outputs are proportional."""


class NotAllowedError(Exception):
    """The task does not allow a family; the message is the reason."""


class Looked:
    """One sample: the truths of the outputs and of the changed inputs, and measurements on them."""

    def __init__(
        self,
        told: dict[str, Any],
        truths: list[torch.Tensor],
        own: Looked | None = None,
        share: float = SHARE,
    ) -> None:
        self.tree = outline(told["outputs"]["tree"])
        self.share = share
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
                    "varies": differs(truth, first),
                    "compared": True,
                    "condition": 0.0,
                    "astray": 0,
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
        """Whether outputs must be as exact as float64, as float32, or both kinds occur."""
        real = [note for note in self.notes if note["real"]]
        return sorted({self._double(note) for note in real}) or [False]

    def _double(self, note: dict[str, Any]) -> bool:
        # The reference's own error shows a float64 output that was computed from float32 numbers.
        return note["double"] and note["noise"] < FLOAT32_NOISE

    def note(
        self, what: str, given: list[torch.Tensor] | None, *, double: bool | None = None
    ) -> None:
        """Records the errors of another run, for all outputs, or only for those that are (not)
        float64."""
        if given is None or [tuple(as_reals(g).shape) for g in given] != self.shapes:
            return
        for note, tensor, truth in zip(self.notes, given, self.truths, strict=True):
            if double is not None and note["real"] and self._double(note) != double:
                continue
            if note["real"] and note["rms"] and tensor.numel():
                mine, exact = (as_reals(t).reshape(-1)[:SAMPLE] for t in (tensor, truth))
                mine = mine.float() if mine.element_size() == 1 else mine
                far = distance(mine, exact)
                note[what] = far.beyond / note["rms"]
                if what == "honest":
                    note["astray"] = max(note["astray"], far.apart)
                ends = [each["below"] for each in note["scales"]]
                found = {each["below"]: each for each in within(mine, exact, ends)}
                for each in note["scales"]:
                    if each["below"] in found:
                        each[what] = found[each["below"]]["beyond"] / each["rms"]
            elif what == "honest" and not note["real"] and not torch.equal(tensor, truth):
                note[what] = 1.0

    def condition(self, given: list[torch.Tensor] | None, *, double: bool | None = None) -> None:
        """Records the reference's condition from another run; ``note`` records errors in the same
        way."""
        if given is None or [tuple(as_reals(g).shape) for g in given] != self.shapes:
            return
        for note, tensor, truth in zip(self.notes, given, self.truths, strict=True):
            mine = double is None or self._double(note) == double
            if note["real"] and mine:
                tensor = as_reals(tensor)
                tensor = tensor.float() if tensor.element_size() == 1 else tensor
                note["condition"] = max(note["condition"], condition(tensor, truth, self.share))

    def worse(self, own: Looked, i: int) -> float:
        """The ratio of an output's condition to that on the own inputs."""
        unit = _unit(self.notes[i])
        return self.notes[i]["condition"] / max(own.notes[i]["condition"], unit)

    def doubtful(self, own: Looked) -> bool:
        """Whether some output may be too ill-conditioned."""
        return len(own.notes) == len(self.notes) and any(
            note["real"] and self.worse(own, i) * NEAR > WORSE for i, note in enumerate(self.notes)
        )

    def rounded_by(self, bits: dict[torch.dtype, int]) -> None:
        """Raises the lower-precision error of small outputs to that of rounding to this many bits.
        A few numbers may coincidentally all be near numbers that have no more bits."""
        for note, count in zip(self.notes, self.truths_count, strict=True):
            kept = bits.get(DTYPES[note["bits"]])
            if note["lower"] and kept is not None and count <= FEW:
                note["lower"] = max(note["lower"], 2.0 ** -(kept + 2))

    def is_suspect(self) -> bool:
        """Whether honest programs may differ here solely because of the weights."""
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
        """Whether the reference fails here, and fails less on ``own``."""
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

    def astray(self) -> bool:
        """Whether an honest program exceeds the largest possible tolerance on some element."""
        return any(note["astray"] for note in self.notes)

    def must_be_like(self, own: Looked) -> None:
        """Raises NotAllowedError where the reference treats these inputs differently from the
        task's own, or honest programs would differ on them."""
        if self.tree != own.tree or self.shapes != own.shapes:
            raise NotAllowedError("the outputs are built differently")
        for i, (mine, theirs) in enumerate(zip(self.notes, own.notes, strict=True)):
            if not mine["real"]:
                if mine["honest"]:
                    raise NotAllowedError(f"honest programs differ in output {i}")
                continue
            if not mine["agrees"] or self.finite[i] < own.finite[i]:
                raise NotAllowedError(f"output {i} is not finite where it is on its own inputs")
            if theirs["varies"] and not mine["varies"]:
                raise NotAllowedError(f"output {i} is constant")
            if self.share == MOST and mine["astray"] and not theirs["astray"]:
                text = f"on {mine['astray']} of its elements honest programs are far apart"
                raise NotAllowedError(f"output {i} is ill-conditioned: {text}")
            error = _error(mine)
            far = not mine["scales"] and error > LARGEST + WORSE * (theirs["honest"] or 0.0)
            if (worse := self.worse(own, i)) > WORSE or far:
                text = f"honest error {error:.1e}, {worse:.0f} times the usual condition"
                raise NotAllowedError(f"output {i} is ill-conditioned: {text}")

    def must_scale_with(self, other: Looked | None) -> None:
        """Raises NotAllowedError unless each output is a smaller multiple of ``other``'s, or equal
        to it where it is not a floating one. Then the reference is a homogeneous function, without
        a constant beside which numbers are small. With one, honest programs may lose small numbers
        (``log(1 + x)`` for ``log1p(x)``)."""
        if other is None or other.shapes != self.shapes:
            raise NotAllowedError("the outputs are built differently")
        for i, (mine, theirs) in enumerate(zip(self.samples, other.samples, strict=True)):
            if not self.notes[i]["real"]:
                if not torch.equal(mine, theirs):
                    raise NotAllowedError(f"output {i} depends on the size of its inputs")
                continue
            mine, theirs = mine.double(), theirs.double()
            square = float(theirs @ theirs)
            factor = float(mine @ theirs) / square if square else 0.0
            apart = float((mine - factor * theirs).norm())
            if not 0 < factor < 1 or not apart <= PROPORTIONAL * factor * square**0.5:
                raise NotAllowedError(f"output {i} is not proportional to a power of its inputs")


def _error(note: dict[str, Any]) -> float:
    """The error of an honest program."""
    return max(note["noise"], note["honest"] or 0.0)


def _unit(note: dict[str, Any]) -> float:
    return torch.finfo(DTYPES[note["bits"]]).eps / 2


def honest(note: dict[str, Any]) -> list[float]:
    """The error of an honest program on a whole output, and on each of its classes."""
    return [note["honest"] or 0.0, *(each["honest"] for each in note["scales"])]


def differs(truth: torch.Tensor, first: torch.Tensor) -> bool:
    """Whether any element differs from ``first``. NaN does not count."""
    if not first.numel():
        return truth.numel() > 0
    return any(bool(((t != first) & (t == t)).any()) for (t,) in pieces(truth) if t.numel())


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The standard deviation of each element, estimated from the difference of two samples."""
    apart = one - other
    apart = apart[torch.isfinite(apart)]
    return (apart.square().mean().item() / 2) ** 0.5 if apart.numel() else 0.0
