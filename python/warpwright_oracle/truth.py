"""The truth: the outputs of a task's reference in float64."""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from .arena import ALIGN
from .arguments import invoke
from .channel import exhausted
from .families import OWN, Labels
from .reference import seed_everything
from .rounding import Reordered, jitter
from .tensors import as_reals, flatten, place, to_double, unflatten, widened
from .widening import Widening

if TYPE_CHECKING:
    from .oracle import Oracle


class Truth:
    """The reference's models in float64, each made on first use."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.models: dict[str, torch.nn.Module | None] = {}
        """By variant; None where the reference does not run in float64."""
        self.anew: set[str] = set()
        """Variants whose model was built again instead of copied."""
        self.widens = False
        """Whether float32 tensors that the reference makes become float64."""
        self.doubt = ""
        """Why there is no float64 truth; empty if there is one."""

    def outputs(
        self, request: dict[str, Any], inputs: Any, free: int
    ) -> tuple[Any, list[torch.Tensor]]:
        """The tree of the outputs, and their tensors followed by the inputs that the reference
        changes, after the call. No tensors if the request does not need them, or if the reference
        cannot run in float64. The arena is free from ``free`` on.

        Raises the reference's error on inputs other than its own, and torch's error if memory is
        exhausted: with more of it, the call may succeed.
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
            # The reference may name float32 itself. Tensors that a model holds outside its modules,
            # for example in a closure, are not copied with it. A model that is built again is
            # converted before anything refers to its float32 tensors.
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
        """The float64 model with these weights, if there is one."""
        if variant not in self.models:
            self.models[variant] = copy.deepcopy(self.oracle.models[variant]).double()
        return self.models[variant]

    def under(
        self, mode: AbstractContextManager[Any], inputs: Any, variant: str = "init"
    ) -> list[torch.Tensor] | None:
        """The outputs for float64 inputs under a mode, followed by the inputs that the reference
        changes. None if there is no float64 model, or it fails under the mode. Raises the errors
        that ``exhausted`` recognises if memory is exhausted."""
        model = self.model(variant)
        if model is None:
            return None
        taken: list[torch.Tensor] = []
        flatten(inputs, taken)
        try:
            with torch.no_grad(), mode, self._widening():
                given = invoke(model, inputs)
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
        """The outputs of a program with honest errors, ``times`` as large, in its operators and
        inputs. See ``Reordered`` for ``everywhere`` and ``one_sign``. With ``ties`` zeros among the
        inputs err too. None, and raises, as ``under``."""
        tensors: list[torch.Tensor] = []
        tree = flatten(to_double(inputs), tensors)
        for index, traits in self.oracle.traits.items():
            if isinstance(traits, Labels):
                continue
            jitter(as_reals(tensors[index]), traits.size if ties else 0.0, times)
        erring = Reordered(times, everywhere=everywhere, one_sign=one_sign)
        return self.under(erring, unflatten(tree, tensors), variant)

    def _widening(self) -> AbstractContextManager[Any]:
        return Widening() if self.widens else nullcontext()

    def doubting(self, variant: str, reason: str) -> None:
        """Records that a variant has no float64 truth, and the reason."""
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
            given = invoke(model, wide)
        tensors: list[torch.Tensor] = []
        tree = flatten(given, tensors)
        tensors += self.oracle.after(copies)
        # The outputs will be stored where the inputs lie now.
        lies_there = self.oracle.arena.holds
        return tree, [t.clone() if lies_there(t) else t for t in tensors]

    def _widened(self, inputs: Any, free: int) -> tuple[Any, list[torch.Tensor]]:
        """Private copies of the inputs in float64, in their tree and as a list. They lie where the
        outputs are stored later, as far as they fit: large copies would not fit beside the
        reference's own memory."""
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
