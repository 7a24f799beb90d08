"""The oracle: holds one task's reference and says what is right.

Trusted for values, not with the host: it runs the task's code in a jail of its own. It makes
inputs from seeds, and for a seed the truth (float64) and what the same-precision reference gives,
so that the judge can scale its tolerance to an honest implementation's error.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import os
import time
from collections.abc import Iterator
from typing import Any

import torch

from . import precision
from .arena import Arena
from .channel import Channel, Refusal, serve
from .reference import Reference, bound, perturb, seed_everything
from .sizes import Allocated, foresee, forward
from .tensors import flatten, place, unflatten

PIECE = 1 << 26
"""Elements of a large tensor that are looked at together."""
SPARE_BYTES = 1 << 30
"""Memory of a GPU that torch may hold unused between requests; others need it."""


def to_double(value: Any) -> Any:
    """A private copy with floating tensors in float64: a reference that writes to its inputs harms
    nobody."""
    tensors: list[torch.Tensor] = []
    tree = flatten(value, tensors)
    return unflatten(tree, [_double(t) for t in tensors])


def _double(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point() and tensor.dtype != torch.float64:
        return tensor.double()
    return tensor.clone()


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Equal tensors cut into the same pieces, so that what is computed of them stays small."""
    flat = [t.reshape(-1) for t in tensors]
    for start in range(0, flat[0].numel(), PIECE):
        yield tuple(t[start : start + PIECE] for t in flat)


def distance(tensor: torch.Tensor, exact: torch.Tensor) -> tuple[float, float, float]:
    """Largest difference between the two where both are finite; root mean square and largest
    magnitude of the finite elements of ``exact``."""
    error, squares, size, count = 0.0, 0.0, 0.0, 0
    for mine, truth in pieces(tensor, exact):
        finite = torch.isfinite(truth)
        known = torch.where(finite, truth, 0.0)
        squares += known.square().sum().item()
        size = max(size, known.abs().max().item())
        count += int(finite.sum().item())
        both = finite & torch.isfinite(mine)
        apart = torch.where(both, mine.double() - known, 0.0)
        error = max(error, apart.abs().max().item())
    return error, (squares / count) ** 0.5 if count else 0.0, size


def largest(tensor: torch.Tensor) -> float:
    """Largest magnitude among the finite elements."""
    sizes = [torch.where(torch.isfinite(t), t, 0.0).abs().max().item() for (t,) in pieces(tensor)]
    return max(sizes, default=0.0)


class Oracle:
    """State between requests."""

    arena: Arena
    """Memory that the judge gave it, once ``adopt`` has been called."""

    def __init__(self, device: str, library: str, channel: Channel) -> None:
        self.device = device
        self.library = library
        self.channel = channel
        self.cuda = device.startswith("cuda")
        self.models: dict[str, torch.nn.Module] = {}
        self.doubles: dict[str, torch.nn.Module | None] = {}
        self.doubt = ""
        self.bounded = False

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Loads the reference's module, and uses nothing of the device. On a GPU, whose memory is
        shared, says what ``open`` would say of sizes, as far as that is known without computing."""
        precision.apply(request["profile"])
        source, mode = request["source"], request["mode"]
        self.reference = Reference(source, self.device, mode)
        return {"sizes": foresee(source, mode, 1) if self.cuda else None}

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Makes the models; says what the reference takes and gives, and whether it is
        deterministic. Asks for a GPU itself, when everything that needs the host only is done."""
        bound(request["device_bytes"])
        self.bounded = request["device_bytes"] is not None
        seed = request["seed"]
        init = self.reference.make(seed)
        other = self.reference.build(seed)
        perturb(other, seed + 1)
        with self._sharing():
            self.models["init"] = self.reference.move(init)
            self.models["other"] = self.reference.move(other)
            return self._look(seed)

    @contextlib.contextmanager
    def _sharing(self) -> Iterator[None]:
        """Holds a GPU with others until what was begun there is done."""
        if not self.cuda:
            yield
            return
        with self.channel.holding("shared"):
            yield
            torch.cuda.synchronize()

    def _look(self, seed: int) -> dict[str, Any]:
        """Runs the reference a few times: what ``open`` says of it."""
        inputs = self.reference.inputs(seed)
        first, changed = self._forward("init", inputs, 1)
        second, _ = self._forward("init", inputs, 2)
        given: list[torch.Tensor] = []
        tree = flatten(first, given)
        again: list[torch.Tensor] = []
        if flatten(second, again) != tree or not all(map(_alike, given, again)):
            raise Refusal("stochastic", "two calls with equal inputs gave different outputs")
        del second, again
        taken: list[torch.Tensor] = []
        input_tree = flatten(inputs, taken)
        started = time.perf_counter()
        self._forward("init", inputs, 1)
        self._settle()
        seconds = time.perf_counter() - started
        with Allocated() as allocated:
            self._forward("init", inputs, 1)
        self._settle()
        held: list[torch.Tensor] = []
        init_tree = flatten(self.reference.init, held)
        return {
            "init": {"tree": init_tree, "tensors": [place(t, None) for t in held]},
            "forward_seconds": seconds,
            "allocated_bytes": allocated.bytes,
            "peak_bytes": allocated.peak,
            "inputs": {"tree": input_tree, "tensors": [place(t, None) for t in taken]},
            "outputs": {"tree": tree, "tensors": [place(t, None) for t in given]},
            "aliases_input": _shares(given, taken),
            "mutates_input": changed,
            "state": [place(t, None) for t in self.models["init"].state_dict().values()],
            "versions": precision.fingerprint(),
        }

    def adopt(self, request: dict[str, Any]) -> dict[str, Any]:
        """Maps its memory, whose descriptor comes with the request: how much a task needs is known
        once it was opened."""
        descriptor = self.channel.descriptor()
        size = request["arena_bytes"]
        with self._sharing():
            self.arena = Arena(self.device, self.library, descriptor, size, populate=False)
        os.close(descriptor)
        return {}

    def init(self, _: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the model's constructor."""
        held: list[torch.Tensor] = []
        tree = flatten(self.reference.init, held)
        places, _ = self.arena.store(held, 0)
        self._settle()
        return {"tree": tree, "tensors": places}

    def _forward(self, variant: str, inputs: Any, seed: int) -> tuple[Any, bool]:
        """The reference's outputs, and whether it changed its inputs."""
        outputs, mine, copies = forward(self.models[variant], inputs, seed)
        return outputs, any(not _same(a, b) for a, b in zip(mine, copies, strict=True))

    def state(self, request: dict[str, Any]) -> dict[str, Any]:
        """The weights of a variant, in the arena."""
        state = self.models[request["variant"]].state_dict()
        places, _ = self.arena.store(list(state.values()), 0)
        self._settle()
        return {"names": list(state), "tensors": places}

    def inputs(self, request: dict[str, Any]) -> dict[str, Any]:
        """Inputs of the given seeds, in the arena one after the other."""
        offset = request.get("offset", 0)
        sets = []
        for seed in request["seeds"]:
            tensors: list[torch.Tensor] = []
            tree = flatten(self.reference.inputs(seed), tensors)
            places, offset = self.arena.store(tensors, offset)
            sets.append({"tree": tree, "tensors": places})
        self._settle()
        return {"sets": sets, "end": offset}

    def expected(self, request: dict[str, Any]) -> dict[str, Any]:
        """Inputs of one seed, the truth, and how far the same-precision reference is from it."""
        inputs = self.reference.inputs(request["seed"])
        taken: list[torch.Tensor] = []
        input_tree = flatten(inputs, taken)
        kept, offset = self.arena.store(taken, 0)
        # From here on they are read from the arena: large ones would not fit twice.
        inputs = unflatten(input_tree, [self.arena.view(at) for at in kept])
        del taken
        # The truth first: what it took in between is given back before the other call.
        exact_tree, exacts = self._truth(request, inputs)
        given, _ = self._forward(request["variant"], inputs, 1)
        tensors: list[torch.Tensor] = []
        tree = flatten(given, tensors)
        truths: list[torch.Tensor] | list[None] = exacts or [None] * len(tensors)
        if exacts and exact_tree != tree:
            self._doubt(request["variant"], "its float64 outputs are built differently")
            truths = [None] * len(tensors)
        outputs, places = [], []
        for tensor, truth in zip(tensors, truths, strict=True):
            real = tensor.is_floating_point()
            exact = tensor if truth is None else truth
            exact = exact.double() if real else exact
            (at,), offset = self.arena.store([exact.contiguous()], offset)
            places.append(at)
            own = None
            if not real:
                (own,), offset = self.arena.store([tensor.contiguous()], offset)
            error, rms, size = distance(tensor, exact) if real else (0.0, 0.0, 0.0)
            outputs.append(
                {
                    "error": error,
                    "rms": rms,
                    "largest": size,
                    "truth": "same precision" if truth is None else "float64",
                    "own": own,
                }
            )
        self._settle()
        return {
            "inputs": {"tree": input_tree, "tensors": kept},
            "outputs": {"tree": tree, "tensors": places},
            "notes": outputs,
            "doubt": self.doubt,
        }

    def _truth(self, request: dict[str, Any], inputs: Any) -> tuple[Any, list[torch.Tensor]]:
        """The tree and the tensors of the outputs computed in float64; no tensors where nobody asks,
        or where the reference cannot run in it."""
        variant = request["variant"]
        if not request["double"]:
            return None, []
        if variant not in self.doubles:
            self.doubles[variant] = copy.deepcopy(self.models[variant]).double()
        model = self.doubles[variant]
        if model is None:
            return None, []
        try:
            seed_everything(1)
            with torch.no_grad():
                given = model(*to_double(inputs))
            tensors: list[torch.Tensor] = []
            return flatten(given, tensors), tensors
        except (RuntimeError, TypeError, ValueError) as error:
            if self.bounded and isinstance(error, torch.OutOfMemoryError):
                raise  # with more memory it may run
            self._doubt(variant, str(error).splitlines()[0])
            return None, []

    def _doubt(self, variant: str, reason: str) -> None:
        """Does without float64 from now on."""
        self.doubles[variant] = None
        self.doubt = f"the reference does not run in float64: {reason}"

    def _settle(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()
            if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > SPARE_BYTES:
                torch.cuda.empty_cache()


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) or bool(torch.all((a == b) | ((a != a) & (b != b))))


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal up to the order of a sum: atomics on a GPU may reorder it."""
    if not a.is_floating_point():
        return _same(a, b)
    slack = 1e-3 * largest(a) + 1e-12
    return all(
        torch.allclose(x.double(), y.double(), rtol=1e-3, atol=slack, equal_nan=True)
        for x, y in pieces(a, b)
    )


def _shares(given: list[torch.Tensor], taken: list[torch.Tensor]) -> bool:
    roots = {t.untyped_storage().data_ptr() for t in taken if t.numel()}
    return any(t.untyped_storage().data_ptr() in roots for t in given if t.numel())


def main() -> None:
    """Entry point: ``python -m warpwright_oracle.oracle``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--library", required=True)
    given = parser.parse_args()
    channel = Channel(given.channel)
    oracle = Oracle(given.device, given.library, channel)
    serve(
        channel,
        {
            "load": oracle.load,
            "open": oracle.open,
            "adopt": oracle.adopt,
            "init": oracle.init,
            "state": oracle.state,
            "inputs": oracle.inputs,
            "expected": oracle.expected,
        },
    )


if __name__ == "__main__":
    main()
