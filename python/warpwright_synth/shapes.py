"""Infers which dimensions must be equal, which sizes are allowed, and the sizes of results.

The first call of an operator uses equal sizes, which nearly all accept. Then sets of dimensions are
doubled or halved. Dimensions that can only change together become one symbol.
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from .domains import Draw
from .fit import fit, value_of
from .trial import Plan, Result, attempt, finite

# Initial sizes. 12 has many divisors; the others are for operators that need a certain number (a
# cross product: 3).
BASES = (12, 4, 3, 2)
# With five dimensions, tensors of size 12 are too large.
SMALL_BASES = (4, 3, 2)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass
class Symbol:
    """A variable size."""

    name: str
    slots: list[str]
    minimum: int = 2
    multiple: int = 1
    at_most: str | None = None


@dataclass
class Shapes:
    """The inferred rules for sizes."""

    symbols: list[Symbol]
    constants: dict[str, int]
    base: int

    def sizes(self, sample: dict[str, int]) -> dict[str, int]:
        """Sizes of slots from sizes of symbols."""
        chosen = {slot: sample[s.name] for s in self.symbols for slot in s.slots}
        return {**chosen, **self.constants}

    def name_of(self, slot: str) -> str:
        """The symbol or constant at a slot."""
        for s in self.symbols:
            if slot in s.slots:
                return s.name
        return str(self.constants[slot])

    def sample(self, source: random.Random, spread: int) -> dict[str, int]:
        """Allowed sizes, as different from one another as the rules permit."""
        bounds = {s.at_most for s in self.symbols}
        for _ in range(200):
            sample: dict[str, int] = {}
            for s in self.symbols:
                low = -(-max(s.minimum, 3) // s.multiple) + (spread if s.name in bounds else 0)
                sample[s.name] = s.multiple * source.randint(low, low + spread)
            bounded = all(
                s.at_most is None or sample[s.name] <= sample[s.at_most] for s in self.symbols
            )
            if bounded and (len(set(sample.values())) == len(sample) or source.random() < 0.02):
                return sample
        # Random sizes seldom meet the bounds: use the smallest and the largest.
        return {
            s.name: s.multiple
            * -(-(spread * 2 if s.name in bounds else max(s.minimum, 3)) // s.multiple)
            for s in self.symbols
        }

    def smallest(self, at_least: int) -> dict[str, int]:
        """The smallest allowed sizes of at least `at_least`."""
        return {
            s.name: s.multiple * -(-max(s.minimum, at_least) // s.multiple) for s in self.symbols
        }


def bases(plan: Plan) -> tuple[int, ...]:
    """Initial sizes to try."""
    return SMALL_BASES if any(t.rank >= 5 for t in plan.tensors) else BASES


def works(plan: Plan, draws: dict[str, Draw], sizes: dict[str, int]) -> bool:
    """Whether a call gives finite results."""
    return finite(attempt(plan, sizes, draws))


def changed(base: int, slots: list[str], some: set[str], to: int) -> dict[str, int]:
    """All sizes at `base`, except `some` at `to`."""
    return {slot: to if slot in some else base for slot in slots}


def groups(plan: Plan, draws: dict[str, Draw], base: int) -> tuple[list[list[str]], list[str]]:
    """Groups of slots that must be equal, and slots that cannot change."""
    slots = plan.slots()
    ranks = {t.name: t.rank for t in plan.tensors}

    def free(some: set[str]) -> bool:
        larger = works(plan, draws, changed(base, slots, some, 2 * base))
        return larger or (base >= 4 and works(plan, draws, changed(base, slots, some, base // 2)))

    def place(slot: str) -> tuple[int | None, int | None]:
        if "." not in slot:
            return None, None
        name, i = slot.rsplit(".", 1)
        return int(i), int(i) - ranks[name]

    parent = {slot: slot for slot in slots}

    def root(slot: str) -> str:
        while parent[slot] != slot:
            slot = parent[slot]
        return slot

    stuck = []
    for slot in slots:
        others = [o for o in slots if o != slot]
        left, right = place(slot)
        guesses: list[set[str]] = [{slot}]
        guesses += [{slot, o} for o in others]
        guesses.append({o for o in slots if place(o)[1] == right and right is not None} | {slot})
        guesses.append({o for o in slots if place(o)[0] == left and left is not None} | {slot})
        if len(slots) <= 14:
            guesses += [{slot, *pair} for pair in itertools.combinations(others, 2)]
        if len(slots) <= 8:
            guesses += [{slot, *three} for three in itertools.combinations(others, 3)]
        found = next((g for g in guesses if free(g)), None)
        if found is None:
            stuck.append(slot)
            continue
        for other in found:
            parent[root(other)] = root(slot)
    classes: dict[str, list[str]] = {}
    for slot in slots:
        if slot not in stuck:
            classes.setdefault(root(slot), []).append(slot)
    return list(classes.values()), stuck


def allowed(ok: Callable[[dict[str, int]], bool], shapes: Shapes, symbol: Symbol) -> bool:
    """Infers a symbol's sizes: multiples of a number, a minimum, and an upper bound by another
    symbol."""
    base, top = shapes.base, 2 * shapes.base
    rest = {s.name: base for s in shapes.symbols}
    good = [n for n in range(2, top + 1) if ok({**rest, symbol.name: n})]
    if len(good) < 2:
        return False
    step = 0
    for n in good:
        step = gcd(step, n)
    symbol.multiple, symbol.minimum = step, good[0]
    if good[-1] < top - step + 1:
        # Test whether it can be larger together with another symbol.
        wanted = base + step * max(1, base // (2 * step))
        for other in shapes.symbols:
            both = {**rest, symbol.name: wanted, other.name: top}
            if other is not symbol and good[-1] >= base and ok(both):
                symbol.at_most = other.name
                good = [n for n in good if n <= base]
                break
        else:
            return False
    return good == list(range(symbol.minimum, good[-1] + 1, step))


def learn(plan: Plan, draws: dict[str, Draw]) -> Shapes | None:
    """Infers symbols and constants of a plan; None if sizes follow no simple rule."""
    slots = plan.slots()
    for base in bases(plan):
        if works(plan, draws, changed(base, slots, set(), base)):
            break
    else:
        return None
    classes, stuck = groups(plan, draws, base)
    if stuck and base > 4:
        return None
    shapes = Shapes(
        [Symbol(LETTERS[i], group) for i, group in enumerate(classes)],
        dict.fromkeys(stuck, base),
        base,
    )
    if len(shapes.symbols) > 12:
        return None
    for symbol in shapes.symbols:
        if not allowed(lambda s: works(plan, draws, shapes.sizes(s)), shapes, symbol):
            return None
    for symbol in shapes.symbols:
        bounded = [s.name for s in shapes.symbols if s.at_most == symbol.name]
        while bounded and symbol.minimum > max(2, symbol.multiple):
            # Its minimum was found alone. Together with the symbols that it bounds it can be
            # smaller.
            less = symbol.minimum - symbol.multiple
            sizes = {s.name: less if s.name in bounded else base for s in shapes.symbols}
            if not works(plan, draws, shapes.sizes({**sizes, symbol.name: less})):
                break
            symbol.minimum = less
    return shapes


# Path, element type and dimensions of each result.
Outputs = list[tuple[str, str, list[str]]]


def signature(result: Result) -> list[tuple[str, str, int]]:
    """The properties of a result that must be equal at all sizes."""
    return [(path, str(t.dtype)[6:], t.dim()) for path, t in result.outputs]


def infer(
    plan: Plan, draws: dict[str, Draw], shapes: Shapes, seed: int
) -> tuple[Outputs, dict[str, list[str]]] | None:
    """Dimensions of results and parameters, inferred from six samples and verified with five."""
    source = random.Random(seed)
    samples = [shapes.sample(source, spread) for spread in (9, 9, 12, 12, 15, 15)]
    checks = [shapes.sample(source, spread) for spread in (10, 18, 18, 24, 30)]
    results = []
    for sample in samples + checks:
        result = attempt(plan, shapes.sizes(sample), draws, seed=len(results))
        if result is None or not finite(result):
            return None
        results.append(result)
    if any(signature(r) != signature(results[0]) for r in results):
        return None
    if any(r.state.keys() != results[0].state.keys() for r in results):
        return None
    names = [s.name for s in shapes.symbols]

    def dims(shape_of: Callable[[Result], tuple[int, ...]]) -> list[str] | None:
        found = []
        for i in range(len(shape_of(results[0]))):
            values = [shape_of(r)[i] for r in results]
            text = fit(names, samples, values[: len(samples)])
            rest = zip(checks, values[len(samples) :], strict=True)
            if text is None or any(value_of(text, c) != v for c, v in rest):
                return None
            found.append(text)
        return found

    outputs: Outputs = []
    for k, (path, dtype, _) in enumerate(signature(results[0])):
        found = dims(lambda r, k=k: tuple(r.outputs[k][1].shape))
        if found is None:
            return None
        outputs.append((path, dtype, found))
    state = {}
    for name in results[0].state:
        if any(len(r.state[name]) != len(results[0].state[name]) for r in results):
            return None
        found = dims(lambda r, name=name: r.state[name])
        if found is None:
            return None
        state[name] = found
    return outputs, state
