"""What is right: the outputs of a task's reference in float64."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from .arena import ALIGN
from .channel import exhausted
from .families import OWN, Labels
from .reference import seed_everything
from .rounding import Reordered, jitter
from .tensors import flatten, place, to_double, unflatten, widened
from .widening import Widening

if TYPE_CHECKING:
    from .oracle import Oracle


class Truth:
    """The reference's models in float64, each made when it is first asked for."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.models: dict[str, torch.nn.Module | None] = {}
        """By variant; None where the reference does not run in float64."""
        self.anew: set[str] = set()
        """Of these variants a model was made anew."""
        self.widens = False
        """Whether what the reference makes in float32 is made in float64."""
        self.doubt = ""
        """Why there is no truth in float64, if there is none."""

    def outputs(
        self, request: dict[str, Any], inputs: Any, free: int
    ) -> tuple[Any, list[torch.Tensor]]:
        """The tree of the outputs, and their tensors with those of the inputs that the reference
        changes behind them, as they are after the call; no tensors where nobody asks for them, or
        where the reference cannot run in float64. The arena is free from ``free`` on.

        Raises what the reference raises on inputs that are not its own, and torch's error where
        memory is short: with more of it, it may run.
        """
        variant = request["variant"]
        if not request["double"]:
            return None, []
        model = self.model(variant)
        widens = self.widens
        while model is not None:
            try:
                return self._run(model, inputs, free)
            except (RuntimeError, TypeError, ValueError) as error:
                if request["family"] != OWN or isinstance(error, torch.OutOfMemoryError):
                    raise
                reason = str(error).splitlines()[0]
            # It may name float32 itself. What a model holds otherwise than as its modules, in a
            # closure say, is not copied with them; one that is made anew is converted before
            # anything refers to it in float32.
            if not self.widens:
                self.widens = True
                continue
            model = None if variant in self.anew else self._made_anew(variant)
            self.anew.add(variant)
            self.models[variant], self.widens = model, widens
            if model is None:
                self.doubting(variant, reason)
        return None, []

    def model(self, variant: str) -> torch.nn.Module | None:
        """The model with these weights in float64, if there is one."""
        if variant not in self.models:
            self.models[variant] = copy.deepcopy(self.oracle.models[variant]).double()
        return self.models[variant]

    def under(
        self, mode: AbstractContextManager[Any], inputs: Any, variant: str = "init"
    ) -> list[torch.Tensor] | None:
        """The outputs for inputs in float64 under a mode, and behind them the inputs that the
        reference changes; None where there is no model in float64, or it does not run so. Raises
        what ``exhausted`` knows where memory is short."""
        model = self.model(variant)
        if model is None:
            return None
        taken: list[torch.Tensor] = []
        flatten(inputs, taken)
        try:
            with torch.no_grad(), mode, self._widening():
                given = model(*inputs)
            outputs: list[torch.Tensor] = []
            flatten(given, outputs)
            return outputs + self.oracle.after(taken)
        except Exception as error:
            self.oracle.settle()
            if exhausted(error):
                raise
            return None

    def astray(
        self,
        inputs: Any,
        times: float = 1.0,
        variant: str = "init",
        *,
        everywhere: bool = False,
        ties: bool = False,
        one_sign: bool = True,
    ) -> list[torch.Tensor] | None:
        """The outputs of a program that errs as an honest one may, so many times, and whose inputs
        do; see ``Reordered`` for ``everywhere`` and ``one_sign``. With ``ties`` zeros among the
        inputs err too. None and raises as ``under``."""
        tensors: list[torch.Tensor] = []
        tree = flatten(to_double(inputs), tensors)
        for index, traits in self.oracle.traits.items():
            if isinstance(traits, Labels):
                continue
            jitter(tensors[index], traits.size if ties else 0.0, times)
        erring = Reordered(times, everywhere=everywhere, one_sign=one_sign)
        return self.under(erring, unflatten(tree, tensors), variant)

    def _widening(self) -> AbstractContextManager[Any]:
        return Widening() if self.widens else nullcontext()

    def doubting(self, variant: str, reason: str) -> None:
        """Does without float64 from now on."""
        self.models[variant] = None
        self.doubt = f"the reference does not run in float64: {reason}"

    def _made_anew(self, variant: str) -> torch.nn.Module:
        reference = self.oracle.reference
        model = reference.build(self.oracle.seed)
        model.load_state_dict(self.oracle.models[variant].state_dict())
        return reference.move(model.double())

    def _run(
        self, model: torch.nn.Module, inputs: Any, free: int
    ) -> tuple[Any, list[torch.Tensor]]:
        wide, copies = self._widened(inputs, free)
        seed_everything(1)
        with torch.no_grad(), self._widening():
            given = model(*wide)
        tensors: list[torch.Tensor] = []
        tree = flatten(given, tensors)
        tensors += self.oracle.after(copies)
        # Where the inputs lay the outputs are stored next.
        lies_there = self.oracle.arena.holds
        return tree, [t.clone() if lies_there(t) else t for t in tensors]

    def _widened(self, inputs: Any, free: int) -> tuple[Any, list[torch.Tensor]]:
        """Private copies of the inputs in float64, as given and in a row. They lie where the
        outputs are stored later, as far as they fit: large ones would not fit beside what the
        reference computes."""
        arena = self.oracle.arena
        tensors: list[torch.Tensor] = []
        tree = flatten(inputs, tensors)
        copies = []
        for tensor in tensors:
            size = 8 * tensor.numel()
            wide = tensor.is_floating_point() and tensor.dtype != torch.float64
            if wide and tensor.is_contiguous() and size and free + size <= arena.size:
                at = place(tensor, free) | {"dtype": "float64", "bytes": size}
                copies.append(arena.view(at).copy_(tensor))
                free += -(-size // ALIGN) * ALIGN
            else:
                copies.append(widened(tensor))
        return unflatten(tree, copies), copies
