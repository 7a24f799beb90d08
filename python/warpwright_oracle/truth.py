"""The truth: the outputs of a task's reference in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from . import batches
from .arena import ALIGN
from .arguments import invoke
from .batches import Batches, Call, NotSliceableError
from .channel import exhausted
from .families import OWN, Labels
from .reference import seed_everything
from .rounding import Reordered, jitter
from .tensors import Place, as_reals, flatten, place, to_double, unflatten, widened
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
        self.batches: Batches | None = None
        """How it is computed by slices of the batch, where it is."""

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

    def divide(self, seed: int) -> str:
        """Computes the truth by slices of the batch from now on, if that gives the same. Returns
        why not, or nothing."""
        widens, reason = self.widens, ""
        for self.widens in (widens, True):
            try:
                found = [batches.proven(self.oracle, each, seed) for each in ("init", "other")]
                self.batches = found[0]
                limits = zip(*(each.limits for each in found), strict=True)
                self.batches.limits = [max(pair) for pair in limits]
                return ""
            except NotSliceableError as error:
                reason = reason or str(error)
            except Exception as error:
                self.oracle.settle()
                reason = reason or f"{type(error).__name__}: {error}"[:200]
        self.widens = widens
        self.models.clear()  # nobody asks for them any more
        return reason

    def caller(
        self,
        variant: str,
        tree: Any,
        mode: Callable[[], AbstractContextManager[Any]] = nullcontext,
        model: torch.nn.Module | None = None,
    ) -> Call:
        """A call of the float64 model with these weights, or of a copy of it, on the tensors of its
        inputs."""
        model = model or self.model(variant)
        if model is None:
            raise NotSliceableError("it does not run in float64")

        def call(tensors: list[torch.Tensor]) -> Any:
            seed_everything(1)
            with torch.no_grad(), mode(), self._widening():
                return invoke(model, unflatten(tree, tensors))

        return call

    def by_slices(
        self, slicing: Batches, variant: str, inputs: Any, offset: int
    ) -> tuple[Any, list[Place], int]:
        """See ``batches.stored``."""
        tensors: list[torch.Tensor] = []
        call = self.caller(variant, flatten(inputs, tensors))
        return batches.stored(self.oracle, slicing, call, tensors, offset)

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

        def shaken(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            for index, traits in self.oracle.traits.items():
                if not isinstance(traits, Labels):
                    jitter(as_reals(tensors[index]), traits.size if ties else 0.0, times)
            return tensors

        def erring() -> Reordered:
            return Reordered(times, everywhere=everywhere, one_sign=one_sign)

        tensors: list[torch.Tensor] = []
        if self.batches is not None:
            tree = flatten(inputs, tensors)
            return self._together(self.batches, variant, tree, tensors, shaken, erring)
        tree = flatten(to_double(inputs), tensors)
        return self.under(erring(), unflatten(tree, shaken(tensors)), variant)

    def _together(
        self,
        slicing: Batches,
        variant: str,
        tree: Any,
        tensors: list[torch.Tensor],
        changed: Callable[[list[torch.Tensor]], list[torch.Tensor]],
        mode: Callable[[], AbstractContextManager[Any]],
    ) -> list[torch.Tensor] | None:
        """The outputs of all slices under a mode, on changed float64 copies of the inputs."""
        if self.model(variant) is None:
            return None
        call = self.caller(variant, tree, mode)
        try:
            _, places = slicing.outlines(call, tensors)
            outputs = [
                torch.empty(at["shape"], dtype=dtype, device=tensors[0].device)
                for at, dtype in zip(places, slicing.dtypes, strict=True)
            ]
            slicing.fill(lambda part: call(changed(part)), tensors, outputs)
            return outputs
        except Exception as error:
            self.oracle.settle()
            if exhausted(error):
                raise
            return None

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
