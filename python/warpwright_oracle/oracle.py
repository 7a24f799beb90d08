"""The oracle: holds one task's reference and computes the expected outputs.

The judge trusts its values, but not the task's code in it: it runs in a jail of its own. It makes
inputs from seeds. For a seed it computes the truth (float64) and the result of the same-precision
reference, so that the judge can scale its tolerance to an honest implementation's error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from . import described, precision, ties
from .arena import Arena, Memory
from .calibration import BUFFERS, Calibrator
from .channel import Channel, arguments, serve
from .device_sampling import DeviceSampling, device_sampling
from .examiner import Examiner
from .expected import expectation
from .families import OWN, Other, Traits, change
from .forms import Form, carried
from .graph import graph
from .opening import properties
from .peak import peak_bytes
from .process_reuse import ProcessReuse
from .reference import Reference, bound, other_buffers, perturb
from .repeats import Given, same
from .sampler import Sampler
from .sizes import foresee, forward
from .tensors import Place, flatten, place
from .truth import Truth
from .truths import truths
from .unsaved import another

SPARE_BYTES = 1 << 30
"""GPU memory that torch may keep unused between requests; other processes need it."""


@dataclass(frozen=True)
class Held:
    """Inputs at the start of the arena, where only this process writes."""

    seed: int
    family: str
    tree: Any
    places: list[Place]
    end: int
    """Offset in bytes where the next value may be stored."""


@dataclass(frozen=True)
class Ran:
    """A call of the reference on copies of its inputs."""

    outputs: Any
    tensors: list[torch.Tensor]
    """The tensors of the outputs."""
    tree: Any
    changed: set[int]
    """The inputs that it changed, by position."""
    after: list[torch.Tensor]
    """The inputs that the reference changes, after the call."""
    views: list[int | None]
    """For each output, the position of the input whose memory it shares."""


class Oracle:
    """State between requests."""

    arena: Arena
    """The judge's memory for this process, after ``adopt``."""
    candidates: Memory
    """On a GPU, the candidates' memory, after ``reach``."""

    def __init__(self, device: str, library: str, channel: Channel) -> None:
        self.device = device
        self.library = library
        self.channel = channel
        self.cuda = device.startswith("cuda")
        self.models: dict[str, torch.nn.Module] = {}
        self.truth = Truth(self)
        self.source = self.mode = ""
        self.seed = 0
        self.traits: dict[int, Traits] = {}
        self.others: dict[str, Other] = {}
        """Families that are not functions of a value, once calibration has begun."""
        self.seconds = 0.0
        self.elements = 0
        self.dtypes: list[torch.dtype] = []
        """Of the tensors of the outputs."""
        self.held: Held | None = None
        self.lent: Memory | None = None
        """On a GPU, the memory of a candidate's inputs, while it is mapped."""
        self.changes: set[int] = set()
        """The inputs that the reference changes, by position."""
        self.copies = True
        """Whether the reference gets copies of its inputs. It does not where these are large, and
        it neither changes nor returns them."""
        self.draws = False
        """Whether it samples random numbers, which changed no result on the inputs tested."""
        self.same: list[bool] = []
        """For each tensor of the inputs, whether it is equal in all samples."""
        self.minds = False
        """Whether the reference tests which numbers are finite."""
        self.device_sampling: DeviceSampling | Literal[False] | None = None
        """How inputs are sampled in place; False: they are not; None: not determined yet."""
        self.form: Form | None = None
        """Structure of the first inputs; all later inputs must match it."""

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Loads the reference's module, without the device. On a GPU, whose memory is shared,
        returns the sizes that ``open`` would return, as far as they are known without computing."""
        precision.apply(request["profile"])
        self.source = source = request["source"]
        self.mode = mode = request["mode"]
        self.reference = Reference(source, self.device, mode)
        self.device_sampling = None
        self.profile = request["profile"]
        return {"sizes": foresee(source, mode, 1) if self.cuda else None}

    def peak(self, _: dict[str, Any]) -> dict[str, Any]:
        """Most memory that this process has held."""
        return {"bytes": peak_bytes(self.cuda)}

    def graph(self, request: dict[str, Any]) -> dict[str, Any]:
        """The operator graph of the loaded module, if shapes determine it."""
        return {"graph": graph(self.source, self.mode, request["seed"])}

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """Makes the model of one variant, for a recorder, without a call of the reference. Returns
        the sizes of what a recorder is given."""
        variant, seed = request["variant"], request["seed"]
        model = self.models[variant] = self.reference.make(seed)
        if variant == "other":
            perturb(model, seed + 1)
        return {
            "init": described.value(self.reference.init),
            "inputs": described.inputs(self.reference, self.source, request["seeds"]),
            "state": [place(t, None) for t in model.state_dict().values()],
        }

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Makes the models. Returns the forms of inputs and outputs, and further properties of the
        reference. Holds the GPU itself, after the work on the host."""
        bound(request["device_bytes"])
        seed = self.seed = request["seed"]
        init = self.reference.make(seed)
        carried(self.reference.init, "get_init_inputs()")
        other = another(self.reference, self.source, init, seed)
        perturb(other.model, seed + 1)
        with self._sharing():
            self.models["init"] = self.reference.move(init)
            self.models["other"] = self.reference.move(other.model)
            with torch.no_grad():
                if (buffers := other_buffers(self.models["init"], seed + 2)) is not None:
                    self.models[BUFFERS] = buffers
            return properties(self, seed, other)

    @contextlib.contextmanager
    def _sharing(self) -> Iterator[None]:
        """Shares the GPU with other processes until all work submitted within is complete."""
        if not self.cuda:
            yield
            return
        with self.channel.holding("shared"):
            yield
            torch.cuda.synchronize()

    @property
    def fixed(self) -> bool:
        """Whether all samples of inputs are equal."""
        return all(self.same)

    def drawn_inputs(self, seed: int) -> Any:
        """The inputs of a seed. Their structure must match that of the first inputs."""
        inputs = self.reference.inputs(seed)
        if self.form is not None:
            Form(inputs).must_be(self.form, "what get_inputs returns")
        return inputs

    def adopt(self, request: dict[str, Any]) -> dict[str, Any]:
        """Maps its memory, whose descriptor comes with the request. The size is known only after
        the task was opened; torch has less of the device beside it."""
        descriptor = self.channel.descriptor()
        size = request["arena_bytes"]
        with self._sharing():
            self.arena = Arena(self.device, self.library).reach(descriptor, size, populate=False)
            if self.reference.device.type == "cuda":
                # Before any sample, so that a seed gives the same numbers whoever asks.
                sampler = Sampler(self.arena.driver, self.reference.device)
                self._find_sampling(self.drawn_inputs(self.seed), self.seed, sampler)
                self.settle()
                # What opening took was there before candidates had memory.
                torch.cuda.reset_peak_memory_stats()
        bound(request.get("device_bytes"))
        os.close(descriptor)
        return {}

    def _find_sampling(self, given: Any, seed: int, sampler: Sampler | None = None) -> None:
        """Finds out how to sample inputs in place; ``given`` are those of ``seed``."""
        found = device_sampling(self.reference, seed, given, sampler)
        self.device_sampling = found or False

    def init(self, _: dict[str, Any]) -> dict[str, Any]:
        """Arguments of the model's constructor."""
        held: list[torch.Tensor] = []
        tree = flatten(self.reference.init, held)
        places, _ = self._store(held, 0)
        self.settle()
        return {"tree": tree, "tensors": places}

    def given(self, variant: str, inputs: Any, seed: int) -> Given:
        """The results of a call on copies of the inputs."""
        outputs, _, copies = forward(self.models[variant], inputs, seed, copy=self.copies)
        tensors: list[torch.Tensor] = []
        tree = flatten(outputs, tensors)
        return Given(tree, tensors + self.after(copies))

    def call(self, variant: str, inputs: Any, seed: int) -> Ran:
        """A call of the reference on copies of the inputs. Records which inputs it changes."""
        outputs, mine, copies = forward(self.models[variant], inputs, seed, copy=self.copies)
        carried(outputs, "output", returned=True)
        pairs = enumerate(zip(mine, copies, strict=True))
        changed = {i for i, (a, b) in pairs if not same(a, b)}
        self.changes |= changed
        tensors: list[torch.Tensor] = []
        tree = flatten(outputs, tensors)
        roots = {t.untyped_storage().data_ptr(): i for i, t in enumerate(copies) if t.numel()}
        storages = [t.untyped_storage().data_ptr() if t.numel() else None for t in tensors]
        views = [None if at is None else roots.get(at) for at in storages]
        return Ran(outputs, tensors, tree, changed, self.after(copies), views)

    def after(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors among the inputs that the reference changes."""
        return [inputs[i] for i in sorted(self.changes)]

    def state(self, request: dict[str, Any]) -> dict[str, Any]:
        """The weights of a variant, in the arena."""
        state = self.models[request["variant"]].state_dict()
        places, _ = self._store(list(state.values()), 0)
        self.settle()
        return {"names": list(state), "tensors": places}

    def _store(self, tensors: list[torch.Tensor], offset: int) -> tuple[list[Place], int]:
        self.held = None
        return self.arena.store(tensors, offset)

    def draw(self, seed: int, family: str) -> Any:
        """The inputs of a seed and a family."""
        ours = self.device_sampling
        if family == OWN and ours and ours.sampler is not None:
            return ours.draw(self.reference.device, seed)
        given = self.drawn_inputs(seed)
        if (other := self.others.get(family)) is not None:
            return other.change(given, seed)
        return change(given, family, self.traits, seed)

    def make(
        self, memory: Memory, seed: int, family: str, offset: int
    ) -> tuple[Any, list[Place], int]:
        """Stores the inputs of a seed and a family in this memory from ``offset`` on. Returns their
        tree, their places and the next offset."""
        if family == OWN and self.device_sampling:
            ((places, end),) = self.device_sampling.make(memory, [seed], [offset])
            return self.device_sampling.tree, places, end
        given = self.draw(seed, family)
        if family == OWN and self.device_sampling is None:
            self._find_sampling(given, seed)
        tensors: list[torch.Tensor] = []
        tree = flatten(given, tensors)
        return tree, *memory.store(tensors, offset)

    def _make_all(
        self, memory: Memory, draws: list[tuple[int, str, int]]
    ) -> list[tuple[Any, list[Place]]]:
        """The same of several seeds, families and offsets, without the next offsets."""
        ours = self.device_sampling
        if not ours or ours.sampler is None:
            return [self.make(memory, *draw)[:2] for draw in draws]
        own = [(seed, offset) for seed, family, offset in draws if family == OWN]
        seeds, offsets = [seed for seed, _ in own], [offset for _, offset in own]
        sampled = iter(ours.make(memory, seeds, offsets) if own else [])
        return [
            (ours.tree, next(sampled)[0]) if draw[1] == OWN else self.make(memory, *draw)[:2]
            for draw in draws
        ]

    def divide(self, _: dict[str, Any]) -> dict[str, Any]:
        """Computes the truth by slices of the batch from now on; ``why`` is the reason if that
        cannot be done."""
        why = self.truth.divide(self.seed)
        self.settle()
        return {"why": why}

    def calibrate(self, request: dict[str, Any]) -> dict[str, Any]:
        """See ``Calibrator``."""
        weights, double = request["weights"], request["double"]
        calibrator = Calibrator(self, self.profile, weights, double=double)
        return calibrator.calibrate(request["seed"], request["families"])

    def reordered(self, request: dict[str, Any]) -> dict[str, Any]:
        """See ``Calibrator``."""
        weights, double = request["variant"], request["double"]
        calibrator = Calibrator(self, self.profile, weights, double=double)
        return calibrator.reordered(request["seed"], request["family"])

    def ties(self, request: dict[str, Any]) -> dict[str, Any]:
        """See ``ties.said``."""
        return ties.said(self, request)

    def examine(self, request: dict[str, Any]) -> dict[str, Any]:
        """See ``Examiner``."""
        examiner = Examiner(self, request["tolerances"], request["weights"])
        return examiner.examine(request["seed"])

    def glance(self, request: dict[str, Any]) -> dict[str, Any]:
        """See ``Examiner``."""
        examiner = Examiner(self, request["tolerances"], request["weights"])
        return examiner.glance(request["seed"], request["signed"])

    def redraw(self, request: dict[str, Any]) -> dict[str, Any]:
        """See ``Examiner``."""
        examiner = Examiner(self, [], request["weights"])
        return examiner.redraw(request["seed"], request["draws"])

    def inputs(self, request: dict[str, Any]) -> dict[str, Any]:
        """Inputs of the given seeds and families, stored one after the other in the arena."""
        first = offset = request["offset"]
        sets = []
        self.held = None
        for seed, family in zip(request["seeds"], request["families"], strict=True):
            tree, places, offset = self.make(self.arena, seed, family, offset)
            sets.append({"tree": tree, "tensors": places})
        if len(sets) == 1 and first == 0:
            # Usually the next request is for their expected outputs.
            self.held = Held(seed, family, tree, places, offset)
        self.settle()
        return {"sets": sets, "end": offset}

    def provide(self, request: dict[str, Any]) -> dict[str, Any]:
        """On a GPU: stores the inputs of one window, each set from its own offset on, in memory
        that begins with offset ``at``. With ``map``, its descriptor comes with the request; it
        stays mapped until ``unmap`` if ``keep`` says so."""
        at, size = request["at"], request["bytes"]
        if request["map"]:
            descriptor = self.channel.descriptor()
            self.lent = self.arena.beside(descriptor, size)
            os.close(descriptor)
        if self.lent is None:
            raise RuntimeError("no memory for inputs was lent")
        memory = Memory(self.arena.device, self.lent.base - at, at + size)
        asked = (request["seeds"], request["families"], request["offsets"])
        try:
            made = self._make_all(memory, list(zip(*asked, strict=True)))
            sets = [{"tree": tree, "tensors": places} for tree, places in made]
            self.settle()  # before the memory is unmapped
        finally:
            if not request["keep"]:
                self.unmap({})
        return {"sets": sets}

    def unmap(self, _: dict[str, Any]) -> dict[str, Any]:
        """Unmaps the memory that ``provide`` has kept, if any."""
        if self.lent is not None:
            self.arena.unmap(self.lent)
            self.lent = None
        return {}

    def expected(self, request: dict[str, Any]) -> dict[str, Any]:
        """The inputs of one seed, their truth, and the error of the same-precision reference. If
        the reference raises on inputs other than its own, ``void`` has the error, and there are
        no outputs or notes."""
        try:
            return expectation(self, request)
        except Exception as error:
            exhausted = isinstance(error, (torch.OutOfMemoryError, MemoryError))
            if request["family"] == OWN or exhausted:
                raise
            self.settle()  # raises if the device is lost
            self.held = None  # it may have changed them
            nothing = {"tree": None, "tensors": []}
            empty = {"inputs": nothing, "outputs": nothing, "exact_tree": None, "after": []}
            empty |= {"notes": [], "doubt": self.truth.doubt}
            return {**empty, "void": f"{type(error).__name__}: {error}"[:400]}

    def truths(self, request: dict[str, Any]) -> dict[str, Any]:
        """See ``truths.truths``."""
        return truths(self, request)

    def hold(self, seed: int, family: str) -> Held:
        """The inputs of a sample at the start of the arena, which may hold them already."""
        held = self.held
        if held is None or (held.seed, held.family) != (seed, family):
            tree, places, end = self.make(self.arena, seed, family, 0)
            self.held = held = Held(seed, family, tree, places, end)
        return held

    def close(self) -> None:
        """Unmaps the judge's memory."""
        if hasattr(self, "arena"):
            self.arena.close()

    def settle(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()
            if _spare_bytes(self.device) > SPARE_BYTES:
                torch.cuda.empty_cache()


def _spare_bytes(device: str) -> int:
    """GPU memory that torch keeps unused. ``torch.cuda.memory_reserved`` makes a table of all its
    statistics, which takes half a millisecond."""
    known = torch.cuda.memory_stats_as_nested_dict(torch.device(device))
    if not known:  # no GPU is in use
        return 0
    reserved, allocated = known["reserved_bytes"], known["allocated_bytes"]
    return reserved["all"]["current"] - allocated["all"]["current"]


def main() -> None:
    """Entry point: ``python -m warpwright_oracle.oracle``."""
    given = arguments().parse_args()
    channel = Channel(given.channel)
    turns = ProcessReuse(lambda: Oracle(given.device, given.library, channel), channel)
    names = [
        "load",
        "describe",
        "open",
        "adopt",
        "init",
        "state",
        "calibrate",
        "divide",
        "examine",
        "glance",
        "redraw",
        "graph",
        "inputs",
        "provide",
        "unmap",
        "expected",
        "truths",
        "reordered",
        "ties",
        "peak",
    ]
    serve(channel, turns.handlers(names))


if __name__ == "__main__":
    main()
