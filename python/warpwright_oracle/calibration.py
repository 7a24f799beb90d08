"""What a task allows as inputs, and how far honest results and those of lower precision lie from
the truth on each of them. Numbers only: what follows from them the judge decides.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import torch

from .distance import distance, pieces
from .families import FAMILIES, OWN, TIES, Traits, changeable
from .rounding import Rounded
from .sizes import forward
from .tensors import DTYPES, flatten, unflatten

if TYPE_CHECKING:
    from .oracle import Oracle

TF32_BITS = {torch.float32: 10}
LOWER: dict[str, dict[torch.dtype, int]] = {
    "strict": {torch.float64: 23, **TF32_BITS, torch.float16: 3, torch.bfloat16: 3},
    # TF32 and half precision have equally many bits: what lies below TF32 is bfloat16.
    "tf32": {torch.float64: 23, torch.float32: 7, torch.float16: 3, torch.bfloat16: 3},
}
"""Stored bits of fraction of the next lower precision: float32, TF32 or bfloat16, and an 8-bit
format (E4M3)."""
WORSE = 64
"""How many times the relative error on the task's own inputs that on others may be. Where it is
more, the reference is ill-conditioned there and honest programs differ."""
SLOW_SECONDS = 1.0
HOST_ELEMENTS, GPU_ELEMENTS = 1 << 20, 1 << 29
"""Where a call takes longer, or has more elements of inputs and outputs than these on its device,
only the first family is tried: each costs about ten calls."""
TRIAL_SECONDS = 2.0
"""So long families are tried on a GPU, where nobody is measured meanwhile; the first always is."""
SAMPLE = 1 << 20
"""Elements of an output of which the errors of other runs are taken."""


class NotAllowedError(Exception):
    """The task does not allow a family, for this reason."""


class Calibrator:
    """Tries the families on one task's reference."""

    def __init__(self, oracle: Oracle, profile: str, *, double: bool) -> None:
        self.oracle = oracle
        self.double = double
        self.tf32 = profile == "tf32"
        self.lower = LOWER["strict" if profile == "strict" else "tf32"]
        # Under `strict`, TF32's tensor cores are what tempts; the others' neighbour is bfloat16.
        self.products = profile == "strict"

    def calibrate(self, seed: int, others: bool) -> dict[str, Any]:
        """Notes on the task's own inputs and, with ``others``, on each family that it allows, in
        ``admitted``; why it does not allow the rest, in ``refused``. Per output, in units of its
        root mean square: ``noise``, the largest error of the same-precision reference; ``honest``,
        of a program that sums in other orders; ``lower``, of one in the next lower precision, or
        None where that could not be found out."""
        oracle = self.oracle
        oracle.traits = traits = self._traits(seed)
        own = self._look(OWN, seed)
        admitted: list[dict[str, Any]] = [{"family": OWN, "notes": own.notes}]
        refused: list[dict[str, str]] = []
        names = list(FAMILIES)
        most = GPU_ELEMENTS if oracle.cuda else HOST_ELEMENTS
        if not others or own.blind or not any(note["real"] for note in own.notes):
            names = []
        elif oracle.seconds > SLOW_SECONDS or oracle.elements > most:
            names = names[:1]
        started = time.perf_counter()
        for i, family in enumerate(names):
            late = oracle.cuda and time.perf_counter() - started > TRIAL_SECONDS
            if i and late:
                refused.append({"family": family, "why": "trying it would keep the GPU too long"})
                continue
            try:
                admitted.append(self._try(family, seed + 1 + i, own, traits))
            except NotAllowedError as error:
                refused.append({"family": family, "why": str(error)[:400]})
            except torch.OutOfMemoryError:
                refused.append({"family": family, "why": "it does not fit the memory"})
                oracle.settle()
        return {"admitted": admitted, "refused": refused}

    def _traits(self, seed: int) -> dict[int, Traits]:
        tensors: list[torch.Tensor] = []
        flatten(self.oracle.reference.inputs(seed), tensors)
        known = {i: changeable(tensor) for i, tensor in enumerate(tensors)}
        return {i: traits for i, traits in known.items() if traits is not None}

    def _try(
        self, family: str, seed: int, own: Looked, traits: dict[int, Traits]
    ) -> dict[str, Any]:
        if not traits:
            raise NotAllowedError("no input is a quantity that may change")
        if family in TIES and not all(note["real"] for note in own.notes):
            raise NotAllowedError("equal elements have no order, which an output would show")
        looked = self._look(family, seed)
        looked.must_be_like(own)
        return {"family": family, "notes": looked.notes}

    def _look(self, family: str, seed: int) -> Looked:
        oracle = self.oracle
        told = oracle.expected(
            {"variant": "init", "seed": seed, "family": family, "double": self.double}
        )
        if told["void"]:
            raise NotAllowedError(f"the reference raises: {told['void']}")
        looked = Looked(told, [oracle.arena.view(at) for at in told["outputs"]["tensors"]])
        views = [oracle.arena.view(at) for at in told["inputs"]["tensors"]]
        inputs = unflatten(told["inputs"]["tree"], views)
        if self.tf32:
            # Also on a GPU: a library takes TF32 where that is faster, and what it computes in
            # float32 says nothing of how far off a product in TF32 may be.
            looked.note("tf32", self._run("init", inputs, Rounded(TF32_BITS, products=True)))
            for note in looked.notes:
                note["noise"] = max(note["noise"], note.pop("tf32", None) or 0.0)
        if looked.blind:
            return looked
        looked.note("honest", self._reordered(inputs, family))
        mode = Rounded(self.lower, products=self.products)
        given = self._run("init", inputs, mode)
        if given is not None and self.products and not mode.products:
            given = None  # before the next run
            given = self._run("init", inputs, Rounded(self.lower, products=False))
        looked.note("lower", given)
        given = None
        oracle.settle()
        return looked

    def _run(self, variant: str, inputs: Any, mode: Any) -> list[torch.Tensor] | None:
        """The outputs under a mode; None where it does not run so, or memory is short."""
        with contextlib.suppress(Exception), mode:
            given, _, _ = forward(self.oracle.models[variant], inputs, 1)
            tensors: list[torch.Tensor] = []
            flatten(given, tensors)
            return tensors
        self.oracle.settle()
        return None

    def _reordered(self, inputs: Any, family: str) -> list[torch.Tensor] | None:
        with contextlib.suppress(Exception):
            return self.oracle.truth.astray(inputs, ties=family in TIES)
        self.oracle.settle()
        return None


class Looked:
    """One draw: the truths, and notes on them."""

    def __init__(self, told: dict[str, Any], truths: list[torch.Tensor]) -> None:
        self.tree = told["outputs"]["tree"]
        self.truths = truths
        self.blind = any(note["truth"] != "float64" for note in told["notes"])
        self.shapes = [tuple(at["shape"]) for at in told["outputs"]["tensors"]]
        self.notes: list[dict[str, Any]] = []
        self.finite: list[float] = []
        self.varies: list[bool] = []
        for note, at in zip(told["notes"], told["outputs"]["tensors"], strict=True):
            real = DTYPES[at["dtype"]].is_floating_point
            scale = note["rms"]
            self.notes.append(
                {
                    "real": real,
                    "agrees": note["agrees"],
                    "rms": scale,
                    "largest": note["largest"] / scale if scale else 0.0,
                    "noise": note["error"] / scale if scale else 0.0,
                    "honest": None,
                    "lower": None,
                }
            )
        for truth in truths:
            share, varies = _finite_and_varied(truth)
            self.finite.append(share)
            self.varies.append(varies)

    def note(self, what: str, given: list[torch.Tensor] | None) -> None:
        """Notes the errors of another run."""
        if given is None or [tuple(g.shape) for g in given] != self.shapes:
            return
        for note, tensor, truth in zip(self.notes, given, self.truths, strict=True):
            if note["real"] and note["rms"] and tensor.numel():
                mine, exact = (t.reshape(-1)[:SAMPLE] for t in (tensor, truth))
                note[what] = distance(mine, exact).error / note["rms"]

    def must_be_like(self, own: Looked) -> None:
        """Raises NotAllowedError where these inputs mean something else to the reference than the
        task's own, or honest programs would differ on them."""
        if self.tree != own.tree or self.shapes != own.shapes:
            raise NotAllowedError("the outputs are built differently")
        for i, (mine, theirs) in enumerate(zip(self.notes, own.notes, strict=True)):
            if not mine["real"]:
                continue
            if not mine["agrees"] or self.finite[i] < own.finite[i]:
                raise NotAllowedError(f"output {i} is not finite where it is on its own inputs")
            if own.varies[i] and not self.varies[i]:
                raise NotAllowedError(f"output {i} is constant")
            least = 2.0**-24 if theirs["noise"] < 2.0**-24 else theirs["noise"]
            error = max(mine["noise"], mine["honest"] or 0.0)
            if error > WORSE * max(least, theirs["honest"] or 0.0):
                raise NotAllowedError(f"output {i} is ill-conditioned: honest error {error:.1e}")


def _finite_and_varied(truth: torch.Tensor) -> tuple[float, bool]:
    """The share of finite elements, and whether not all of these are equal."""
    if not truth.is_floating_point() or not truth.numel():
        return 1.0, True
    count, low, high = 0, float("inf"), float("-inf")
    for (piece,) in pieces(truth):
        finite = torch.isfinite(piece)
        count += int(finite.sum().item())
        low = min(low, torch.where(finite, piece, float("inf")).min().item())
        high = max(high, torch.where(finite, piece, float("-inf")).max().item())
    return count / truth.numel(), truth.numel() == 1 or low < high
