"""The oracle: holds one task's reference and computes the expected outputs.

The judge trusts its values, but not the task's code in it: it runs in a jail of its own. It makes
inputs from seeds. For a seed it computes the truth (float64) and the result of the same-precision
reference, so that the judge can scale its tolerance to an honest implementation's error.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from . import described, precision, ties
from .arena import Arena, Memory
from .calibration import BUFFERS, Calibrator
from .channel import Channel, arguments, serve
from .computes import Computes
from .device_sampling import DeviceSampling, device_sampling
from .distance import INFINITE, distance, pieces
from .examiner import Examiner
from .families import OWN, Other, Traits, change
from .forms import Form, carried, varying
from .graph import graph
from .process_reuse import ProcessReuse
from .reference import Reference, bound, other_buffers, perturb
from .repeats import SAME, Given, alike, must_repeat, same
from .sampler import Sampler
from .scales import by_scale
from .sizes import Allocated, foresee, forward
from .tensors import NAMES, Place, as_reals, flatten, is_real, outline, place, unflatten
from .truth import Truth
from .truths import truths
from .unsaved import Another, another

DRAWS, FURTHER_DRAWS = 3, 5
"""Samples of inputs that are compared in full when a task is opened, and further ones of small
tasks whose structure is compared."""
DRAWN = 0x5EED_3000
"""Offset added to a seed for these."""
SMALL_ELEMENTS = 1 << 20
LOOKS = 3
"""Calls on a GPU of which the fastest is the time per call: other processes compute meanwhile."""
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
        self.held: Held | None = None
        self.lent: Memory | None = None
        """On a GPU, the memory of a candidate's inputs, while it is mapped."""
        self.changes: set[int] = set()
        """The inputs that the reference changes, by position."""
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
            return self._look(seed, other)

    @contextlib.contextmanager
    def _sharing(self) -> Iterator[None]:
        """Shares the GPU with other processes until all work submitted within is complete."""
        if not self.cuda:
            yield
            return
        with self.channel.holding("shared"):
            yield
            torch.cuda.synchronize()

    def _look(self, seed: int, other: Another) -> dict[str, Any]:
        """Runs the reference a few times and returns the properties for ``open``. Refuses a
        reference that no candidate can be judged against."""
        inputs = self.reference.inputs(seed)
        carried(inputs, "get_inputs()")
        self.form = Form(inputs)
        ran = self.call("init", inputs, 1)
        first = ran.outputs
        carried(first, "forward()", returned=True)
        given: list[torch.Tensor] = []
        tree = flatten(first, given)
        this = Given(tree, given + ran.after)
        self.draws = must_repeat(this, lambda seed: self.given("init", inputs, seed))
        self._must_be_saved(inputs, given, other)
        taken: list[torch.Tensor] = []
        input_tree = flatten(inputs, taken)
        self.elements = sum(t.numel() for t in (*taken, *given))
        self._must_be_alike(seed, (input_tree, taken), (tree, Form(first)))
        self.seconds = min(self._time(inputs) for _ in range(LOOKS if self.cuda else 1))
        with Allocated() as allocated, Computes() as computes:
            forward(self.models["init"], inputs, 1)
        self.minds = computes.minds
        self.settle()
        held: list[torch.Tensor] = []
        init_tree = flatten(self.reference.init, held)
        return {
            "init": {"tree": init_tree, "tensors": [place(t, None) for t in held]},
            "forward_seconds": self.seconds,
            "allocated_bytes": allocated.bytes,
            "peak_bytes": allocated.peak,
            "inputs": {"tree": input_tree, "tensors": [place(t, None) for t in taken]},
            "outputs": {"tree": tree, "tensors": [place(t, None) for t in given]},
            "aliases_input": any(at is not None for at in ran.views),
            "mutates_input": bool(self.changes),
            "changed": [place(taken[i], None) for i in sorted(self.changes)],
            "computes": computes.found,
            "only_views": bool(ran.views)
            and all(at is not None for at in ran.views)
            and not self.changes,
            "fixed_inputs": self.fixed,
            "state": [place(t, None) for t in self.models["init"].state_dict().values()],
            "versions": precision.fingerprint(),
        }

    def _must_be_saved(self, inputs: Any, given: list[torch.Tensor], other: Another) -> None:
        """Refuses a reference whose results depend on random values outside its ``state_dict``."""
        if other.spare is None:
            return
        outputs, _, _ = forward(self.reference.move(other.spare), inputs, 1)
        found: list[torch.Tensor] = []
        flatten(outputs, found)
        as_many = len(found) == len(given)
        if not as_many or not all(alike(a, b, SAME) for a, b in zip(given, found, strict=True)):
            raise other.refusal()

    @property
    def fixed(self) -> bool:
        """Whether all samples of inputs are equal."""
        return all(self.same)

    def _must_be_alike(self, seed: int, taken: Any, given: Any) -> None:
        """Refuses a task whose samples differ in structure. Records which inputs are equal in all
        samples."""
        (input_tree, tensors), (tree, form) = taken, given
        self.same = [True] * len(tensors)
        further = FURTHER_DRAWS if self.elements <= SMALL_ELEMENTS else 0
        for i in range(1, DRAWS + further):
            inputs = self.drawn_inputs(seed + DRAWN + i)
            drawn: list[torch.Tensor] = []
            built_alike = flatten(inputs, drawn) == input_tree
            pairs = zip(self.same, tensors, drawn, strict=True)
            self.same = [is_so and built_alike and same(a, b) for is_so, a, b in pairs]
            if i < DRAWS:
                outputs, _ = self._forward("init", inputs, 1)
                Form(outputs).must_be(form, "what forward returns")
                if flatten(outputs, []) != tree:
                    raise varying("forward returns a number or a text that depends on its inputs")

    def drawn_inputs(self, seed: int) -> Any:
        """The inputs of a seed. Their structure must match that of the first inputs."""
        inputs = self.reference.inputs(seed)
        if self.form is not None:
            Form(inputs).must_be(self.form, "what get_inputs returns")
        return inputs

    def _time(self, inputs: Any) -> float:
        started = time.perf_counter()
        self._forward("init", inputs, 1)
        self.settle()
        return time.perf_counter() - started

    def adopt(self, request: dict[str, Any]) -> dict[str, Any]:
        """Maps its memory, whose descriptor comes with the request. The size is known only after
        the task was opened."""
        descriptor = self.channel.descriptor()
        size = request["arena_bytes"]
        with self._sharing():
            self.arena = Arena(self.device, self.library).reach(descriptor, size, populate=False)
            if self.reference.device.type == "cuda":
                # Before any sample, so that a seed gives the same numbers whoever asks.
                sampler = Sampler(self.arena.driver, self.reference.device)
                self._find_sampling(self.drawn_inputs(self.seed), self.seed, sampler)
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

    def _forward(self, variant: str, inputs: Any, seed: int) -> tuple[Any, bool]:
        """The reference's outputs, and whether the call changed its inputs."""
        ran = self.call(variant, inputs, seed)
        return ran.outputs, bool(ran.changed)

    def given(self, variant: str, inputs: Any, seed: int) -> Given:
        """The results of a call on copies of the inputs."""
        outputs, _, copies = forward(self.models[variant], inputs, seed)
        tensors: list[torch.Tensor] = []
        tree = flatten(outputs, tensors)
        return Given(tree, tensors + self.after(copies))

    def call(self, variant: str, inputs: Any, seed: int) -> Ran:
        """A call of the reference on copies of the inputs. Records which inputs it changes."""
        outputs, mine, copies = forward(self.models[variant], inputs, seed)
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
            return self._expected(request)
        except Exception as error:
            exhausted = isinstance(error, (torch.OutOfMemoryError, MemoryError))
            if request["family"] == OWN or exhausted:
                raise
            self.settle()  # raises if the device is lost
            nothing = {"tree": None, "tensors": []}
            empty = {"inputs": nothing, "outputs": nothing, "exact_tree": None, "after": []}
            empty |= {"notes": [], "doubt": self.truth.doubt}
            return {**empty, "void": f"{type(error).__name__}: {error}"[:400]}

    def _expected(self, request: dict[str, Any]) -> dict[str, Any]:
        family = request["family"]
        held = self._hold(request["seed"], family)
        input_tree, kept, offset = held.tree, held.places, held.end
        # Read the inputs from the arena: large ones would not fit twice.
        taken = [self.arena.view(at) for at in kept]
        inputs = unflatten(input_tree, taken)
        known = set(self.changes)
        # Compute and store the truth first, so that its memory is free for the other call.
        exact_tree, truths, end = self._stored_truth(request, inputs, offset)
        ran = self.call(request["variant"], inputs, 1)
        tensors, tree, count = ran.tensors + ran.after, ran.tree, len(ran.tensors)
        changes = sorted(self.changes)
        if self.changes != known:  # the truth lacks an input that changed for the first time
            truths = []
        if truths and (outline(exact_tree) != outline(tree) or len(truths) != len(tensors)):
            if family != OWN:
                raise RuntimeError("its float64 outputs are built differently")
            self.truth.doubting(request["variant"], "its float64 outputs are built differently")
            truths = []
        if truths:
            offset = end
        else:
            truths, exact_tree = [None] * len(tensors), None
        notes, places = [], []
        for i, (tensor, truth) in enumerate(zip(tensors, truths, strict=True)):
            if truth is None:
                (at,), offset = self._exactly(tensor, offset)
            else:
                at = truth
            places.append(at)
            note = self._note(tensor, self.arena.view(at))
            if i >= count:
                moved, note["count"] = _moved(tensor, taken[changes[i - count]])
                note["spread"] = min(note["spread"], moved)
            elif (view := ran.views[i]) is not None:
                note["view_of"] = view
                note["count"] *= view in self.changes
            if note.pop("ambiguous"):
                (note["own"],), offset = self.arena.store([as_reals(tensor).contiguous()], offset)
            notes.append({**note, "truth": "same precision" if truth is None else "float64"})
        self.settle()
        return {
            "inputs": {"tree": input_tree, "tensors": kept},
            "outputs": {"tree": tree, "tensors": places[:count]},
            "exact_tree": exact_tree,
            "after": [
                {"input": i, "truth": at} for i, at in zip(changes, places[count:], strict=True)
            ],
            "notes": notes,
            "doubt": self.truth.doubt,
            "void": "",
        }

    def truths(self, request: dict[str, Any]) -> dict[str, Any]:
        """See ``truths.truths``."""
        return truths(self, request)

    def _note(self, tensor: torch.Tensor, exact: torch.Tensor) -> dict[str, Any]:
        """Properties of one output, or of an input that the reference changes. ``ambiguous``: the
        same-precision reference's result counts as correct beside the truth. ``count``: how many
        elements distinguish a correct answer from a wrong one."""
        note: dict[str, Any] = {
            "dtype": NAMES.get(tensor.dtype, str(tensor.dtype)),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            "view_of": None,
            "own": None,
        }
        if not is_real(tensor.dtype):
            known = dict.fromkeys(("error", "beyond", "rms", "spread", "largest"), 0.0)
            count = {"count": tensor.numel(), "finite": tensor.numel(), "apart": 0}
            return {**note, **known, **count, "agrees": True, "ambiguous": True, "scales": []}
        mine = as_reals(tensor)
        mine = mine.float() if mine.element_size() == 1 else mine
        far = distance(mine, exact)
        scales = by_scale(mine, exact, far.rms)
        apart = far.apart + sum(scale.pop("apart") for scale in scales)
        return {
            **note,
            "error": far.near,
            "beyond": far.beyond,
            "rms": far.rms,
            "spread": far.spread,
            "largest": far.largest,
            "agrees": far.agrees,
            "count": far.count,
            "finite": far.count,
            "apart": far.apart,
            "scales": scales,
            "ambiguous": bool(apart) or not far.agrees,
        }

    def _stored_truth(
        self, request: dict[str, Any], inputs: Any, offset: int
    ) -> tuple[Any, list[Place | None], int]:
        """Stores the float64 outputs, and the inputs that the reference changes. Returns their
        tree, their places and the next offset."""
        tree, exacts = self.truth.outputs(request, inputs, offset)
        places: list[Place | None] = []
        try:
            for exact in exacts:
                (at,), offset = self._exactly(exact, offset)
                places.append(at)
        except MemoryError:  # float64 needs more memory than the outputs
            return None, [], offset
        return tree, places, offset

    def _exactly(self, tensor: torch.Tensor, offset: int) -> tuple[list[Place], int]:
        """Stores an output in the arena: floating ones in float64, complex ones as pairs of
        float64."""
        exact = as_reals(tensor).double() if is_real(tensor.dtype) else tensor
        return self.arena.store([exact.contiguous()], offset)

    def _hold(self, seed: int, family: str) -> Held:
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


def _moved(after: torch.Tensor, before: torch.Tensor) -> tuple[float, int]:
    """Root mean square of the changes that a call made, over the changed elements (infinity if
    there are none), and the number of these."""
    squares, count = 0.0, 0
    for late, early in pieces(as_reals(after), as_reals(before)):
        moved = late.double() - early.double()
        moved = moved[torch.isfinite(moved) & (moved != 0)]
        squares, count = squares + moved.square().sum().item(), count + moved.numel()
    return ((squares / count) ** 0.5 if count else INFINITE), count


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
    ]
    serve(channel, turns.handlers(names))


if __name__ == "__main__":
    main()
