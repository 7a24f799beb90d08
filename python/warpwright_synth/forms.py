"""Finds all working ways to call one operator."""

import itertools
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from . import domains, shapes, values
from .cost import Work, flatten, measure
from .domains import BENIGN, INDEX, TRUTH, Draw
from .signature import TENSOR, TENSORS, Argument
from .trial import Plan, Result, TensorInput, attempt, call, call_with, finite

# Largest number of forms per operator, and of forms that differ only in ranks.
MAX_FORMS = 8
MAX_RANKS = 3


@dataclass
class Target:
    """A callable to probe."""

    name: str
    kind: str
    # Text of the call, with a placeholder for a method's object.
    callee: str
    signatures: list[list[Argument]]
    # A module's arguments of `forward`; empty otherwise.
    forward: list[Argument] = field(default_factory=list)
    namespace: dict[str, Any] = field(default_factory=dict)
    # Lines that make `namespace` in a file.
    imports: list[str] = field(default_factory=list)
    # Arguments of a constructor as one text, if they are not `signatures`: a config object.
    init_texts: list[str] = field(default_factory=list)


def variants(arguments: list[Argument]) -> Iterator[dict[str, str]]:
    """Attribute values by name: required ones with their usual values, then one change at a
    time."""
    plain = [a for a in arguments if a.kind not in (TENSOR, TENSORS, "other")]
    required: list[list[tuple[str, str]]] = []
    for a in plain:
        if not a.required:
            continue
        texts = list(values.choices(a))
        if values.is_size(a):
            texts = [f"{{{a.name}}}"]
        elif a.kind == "ints" and a.name not in values.FIXED:
            texts = [f"[{{{a.name}_0}}]", f"[{{{a.name}_0}}, {{{a.name}_1}}]", *texts]
        elif a.name == "size":
            texts += ["[" + ", ".join(f"{{size_{i}}}" for i in range(n)) + "]" for n in (2, 3, 4)]
        required.append([(a.name, text) for text in texts])
    bases = [dict(base) for base in itertools.islice(itertools.product(*required), 12)]
    names = {a.name for a in plain}
    yield from bases
    for base in bases[:4]:
        for together in values.TOGETHER:
            if set(together) <= names and any(base.get(k) != v for k, v in together.items()):
                yield {**base, **together}
    for base in bases[:2]:
        for a in plain:
            if not a.required:
                for text in values.choices(a):
                    yield {**base, a.name: text}


def tensor_sets(arguments: list[Argument]) -> list[list[Argument]]:
    """The sets of tensors to pass: the required ones, all, and each optional one alone."""
    required = [a for a in arguments if a.kind in (TENSOR, TENSORS) and a.required]
    optional = [a for a in arguments if a.kind == TENSOR and not a.required]
    sets = [required]
    if optional:
        sets.append(required + optional)
        if len(optional) > 1:
            sets += [[*required, a] for a in optional[:3]]
    return [s for s in sets if s]


def rank_tuples(count: int) -> Iterator[tuple[int, ...]]:
    """Ranks of `count` tensors, the usual ones first."""
    order = (3, 4, 2, 1, 5)
    seen = set()
    if count == 1:
        yield from ((r,) for r in order)
        return
    usual = [(r,) * count for r in order[:4]]
    usual += [(r, *(1,) * (count - 1)) for r in (2, 3, 4)]
    usual += [(*(r,) * (count - 1), 1) for r in (4, 3, 5)] + [(5,) * count]
    usual += [(r, 2, *(1,) * (count - 2)) for r in (3, 2, 4)]
    usual += [(*(r,) * (count - 1), r - 1) for r in (4, 3, 2)]
    rest: Iterator[tuple[int, ...]] = iter(())
    if count == 2:
        rest = itertools.product((1, 2, 3, 4), repeat=2)
    elif count == 3:
        rest = itertools.product((1, 2, 3), repeat=3)
    for ranks in itertools.chain(usual, rest):
        if ranks not in seen:
            seen.add(ranks)
            yield ranks


def dtype_tuples(count: int) -> Iterator[tuple[str, ...]]:
    """Element types of `count` tensors: floats, then one index or mask, then others."""
    yield ("float32",) * count
    if count <= 4:
        for other in ("int64", "bool"):
            for i in range(count):
                yield tuple(other if j == i else "float32" for j in range(count))
    if count <= 3:
        yield ("int64",) * count
        yield ("bool",) * count


def default_draws(plan: Plan, benign: Draw) -> dict[str, Draw]:
    """Values of tensors while shapes are inferred."""
    by_type = {"float32": benign, "int64": INDEX, "bool": TRUTH}
    return {t.name: by_type[t.dtype] for t in plan.tensors}


def first_works(plan: Plan) -> dict[str, Draw] | None:
    """Values with which the plan works, with all sizes equal."""
    slots = plan.slots()
    floats = any(t.dtype == "float32" for t in plan.tensors)
    for base in shapes.bases(plan):
        for benign in BENIGN if floats else BENIGN[:1]:
            draws = default_draws(plan, benign)
            if finite(attempt(plan, dict.fromkeys(slots, base), draws)):
                return draws
    return None


def make_plan(
    target: Target,
    tensors: list[Argument],
    attributes: dict[str, str],
    init: str | None,
    ranks: tuple[int, ...],
    dtypes: tuple[str, ...],
    arguments: list[Argument],
) -> Plan:
    """The call as text. Required arguments are positional, others are keywords."""
    names: list[str] = []
    parts: list[str] = []
    given = {a.name for a in tensors}
    by_position = True
    for a in arguments:
        if a.name in given:
            if a.kind == TENSORS:
                pair = ["first", "second"] if "first" not in names else ["third", "fourth"]
                names += pair
                text = f"[{{{pair[0]}}}, {{{pair[1]}}}]"
            else:
                name = a.name if a.name not in ("self", "out") else "input"
                names.append(name.lower())
                text = f"{{{name.lower()}}}"
        elif a.name in attributes and init is None:
            text = attributes[a.name]
        else:
            by_position = False
            continue
        keyword = (
            a.keyword_only
            or not by_position
            or (a.kind not in (TENSOR, TENSORS) and not a.required)
        )
        parts.append(f"{a.name}={text}" if keyword and a.name != "self" else text)
    inputs = [TensorInput(n, r, d) for n, r, d in zip(names, ranks, dtypes, strict=True)]
    if target.kind == "method":
        call_text = f"{parts[0]}.{target.callee}({', '.join(parts[1:])})"
    else:
        callee = "module" if init is not None else target.callee
        call_text = f"{callee}({', '.join(parts)})"
    texts = " ".join(attributes.values()) + " " + (init or "") + " " + call_text
    known = {t.name for t in inputs}
    sizes = [n for n in dict.fromkeys(re.findall(r"\{(\w+)\}", texts)) if n not in known]
    return Plan(call_text, inputs, init, sizes, attributes, target.namespace)


def inits(target: Target) -> Iterator[tuple[str | None, dict[str, str]]]:
    """Constructor texts of a module with their attribute values; (None, {}) for functions."""
    if target.kind != "module":
        yield None, {}
        return
    if target.init_texts:
        for text in target.init_texts:
            yield text, {}
        return
    for arguments in target.signatures:
        for attributes in itertools.islice(variants(arguments), 40):
            parts = []
            for a in arguments:
                if a.name in attributes:
                    keyword = not a.required or a.keyword_only
                    parts.append(
                        f"{a.name}={attributes[a.name]}" if keyword else attributes[a.name]
                    )
            yield f"{target.callee}({', '.join(parts)})", attributes


def plans(target: Target) -> Iterator[list[Iterator[Plan]]]:
    """Plans in families: plans of one family differ only in ranks and element types."""
    if target.kind == "module":
        for init, attributes in inits(target):
            for tensors in tensor_sets(target.forward):
                yield family(target, tensors, attributes, init, target.forward)
        return
    for arguments in target.signatures:
        for tensors in tensor_sets(arguments):
            for attributes in itertools.islice(variants(arguments), 40):
                yield family(target, tensors, attributes, None, arguments)


def family(
    target: Target,
    tensors: list[Argument],
    attributes: dict[str, str],
    init: str | None,
    arguments: list[Argument],
) -> list[Iterator[Plan]]:
    """One family: for each tuple of ranks, the plans with different element types."""
    count = sum(2 if a.kind == TENSORS else 1 for a in tensors)

    def of(ranks: tuple[int, ...]) -> Iterator[Plan]:
        for dtypes in dtype_tuples(count):
            yield make_plan(target, tensors, attributes, init, ranks, dtypes, arguments)

    return [of(ranks) for ranks in itertools.islice(rank_tuples(count), 36)]


def bound_of(plan: Plan, found: shapes.Shapes, draws: dict[str, Draw], tensor: str) -> str | None:
    """The symbol that bounds an index: the same one at different sizes."""
    left = {s.name for s in found.symbols}
    for seed in range(4):
        sample = found.sample(random.Random(seed), 12)
        sizes = found.sizes(sample)

        def fine(value: int, sizes: dict[str, int] = sizes) -> bool:
            values_ = {**draws, tensor: Draw("int64", value, value + 1)}
            return finite(attempt(plan, sizes, values_, seed=3))

        left = {n for n in left if fine(sample[n] - 1) and not fine(sample[n])}
    return left.pop() if len(left) == 1 else None


def learn_values(plan: Plan, found: shapes.Shapes, draws: dict[str, Draw]) -> dict[str, Any] | None:
    """The domain of each tensor, or the bound of an index: `{"x": "positive", "index": ("A",
    )}`."""
    sample = found.sample(random.Random(5), 9)
    sizes = found.sizes(sample)
    learnt: dict[str, Any] = {}
    for tensor in plan.tensors:

        def fine(values_: Draw, name: str = tensor.name) -> bool:
            return finite(attempt(plan, sizes, {**draws, name: values_}, seed=3))

        if tensor.dtype == "bool":
            learnt[tensor.name] = "bool"
        elif tensor.dtype == "float32":
            domain = domains.learn(fine)
            if domain is None:
                return None
            learnt[tensor.name] = domain
        elif fine(Draw("int64", 900, 1000)):
            learnt[tensor.name] = "integer"
        else:
            bound = bound_of(plan, found, draws, tensor.name)
            if bound is None:
                return None
            learnt[tensor.name] = (bound,)
    return learnt


def draws_of(plan: Plan, learnt: dict[str, Any], floor: int) -> dict[str, Draw]:
    """Samplers of the inferred domains; indices stay below `floor`, which no size may be less
    than."""
    draws = {}
    for t in plan.tensors:
        domain = learnt[t.name]
        draws[t.name] = (
            Draw("int64", 0, floor) if isinstance(domain, tuple) else domains.DRAWS[domain]
        )
    return draws


def dtype_rule(plan: Plan, sizes: dict[str, int], draws: dict[str, Draw]) -> dict[str, str]:
    """Element type of the first result per element type of the float inputs. Absent if a call
    fails."""
    rule = {}
    for dtype in ("float32", "float64", "float16", "bfloat16", "int64"):
        if plan.init is not None and dtype != "float32":
            continue
        cast = {
            n: Draw(dtype, max(d.low, 1) if dtype == "int64" else d.low, max(d.high, 3))
            if d.dtype == "float32"
            else d
            for n, d in draws.items()
        }
        if dtype != "int64":
            cast = {
                n: Draw(dtype, d.low, d.high) if d.dtype == "float32" else d
                for n, d in draws.items()
            }
        result = attempt(plan, sizes, cast)
        if result is not None:
            rule[dtype] = str(result.outputs[0][1].dtype)[6:]
    return rule


@dataclass
class Form:
    """A plan with all its inferred properties."""

    plan: Plan
    shapes: shapes.Shapes
    learnt: dict[str, Any]
    outputs: shapes.Outputs
    state: dict[str, list[str]]
    work: Work
    dtypes: dict[str, str]
    digest: str


class Refused(Exception):
    """The catalogue excludes the operator; the message is the reason."""


def same(first: Result, second: Result) -> bool:
    """Whether two calls returned equal results."""
    a, b = flatten(first), flatten(second)
    return a.shape == b.shape and torch.equal(a, b)


def study(plan: Plan, draws: dict[str, Draw]) -> Form | None:
    """Infers all properties of one plan; None if it follows no rule that the catalogue can
    express."""
    found = shapes.learn(plan, draws)
    if found is None:
        return None
    learnt = learn_values(plan, found, draws)
    if learnt is None:
        return None
    draws = draws_of(plan, learnt, 2)
    inferred = shapes.infer(plan, draws, found, seed=1)
    if inferred is None:
        return None
    small = found.sizes(found.smallest(4))
    first = call(plan, small, draws)
    if first.changed_inputs:
        raise Refused("changes its input")
    if call_with(plan, small, first.inputs, watch=True).warned:
        raise Refused("torch warns of such a call")
    equal = {name: tensor.flatten()[:1].expand_as(tensor) for name, tensor in first.inputs.items()}
    try:
        repeated = call_with(plan, small, equal)
    except Exception:  # a failed call shows nothing about shapes
        repeated = first
    if [t.shape for _, t in repeated.outputs] != [t.shape for _, t in first.outputs]:
        raise Refused("its shape depends on values")
    # Windows and random choices often agree at the smallest sizes.
    larger = call(plan, found.sizes(found.smallest(9)), draws)
    for seed, reason in ((0, "not deterministic"), (1, "random")):
        for size, at_size in ((4, first), (9, larger)):
            again = call_with(plan, found.sizes(found.smallest(size)), at_size.inputs, seed)
            if not same(at_size, again):
                raise Refused(reason)
    work = measure(plan, found, draws)
    outputs, state = inferred
    digest = repr(torch.round(flatten(first), decimals=5).tolist()[:64])
    return Form(plan, found, learnt, outputs, state, work, dtype_rule(plan, small, draws), digest)


def all_forms(target: Target, budget_secs: float) -> list[Form]:
    """Forms of an operator, the most usual first. Raises `Refused` if the catalogue excludes it."""
    end = time.monotonic() + budget_secs
    kept: list[Form] = []
    reasons: list[str] = []
    for turn, members in enumerate(plans(target)):
        of_family = 0
        # Probe the usual call at several ranks, and other calls once each, at changing ranks.
        limit = 1 if kept else MAX_RANKS
        if kept and turn % 2:
            members = [*members[1:2], *members[:1], *members[2:]]
        for same_ranks in members:
            if time.monotonic() > end or len(kept) >= MAX_FORMS or of_family >= limit:
                break
            form = first_form(same_ranks, reasons)
            if form is not None and not any(alike(form, other) for other in kept):
                kept.append(form)
                of_family += 1
    if not kept and reasons:
        raise Refused(reasons[0])
    return kept


def alike(form: Form, other: Form) -> bool:
    """Whether two forms compute equal results from equal inputs."""
    ranks = [t.rank for t in form.plan.tensors]
    return form.digest == other.digest and ranks == [t.rank for t in other.plan.tensors]


def first_form(same_ranks: Iterator[Plan], reasons: list[str]) -> Form | None:
    """The form with the first accepted element types; appends to `reasons` why there is none."""
    for plan in same_ranks:
        draws = first_works(plan)
        if draws is None:
            continue
        try:
            form = study(plan, draws)
        except Refused as refused:
            reasons.append(str(refused))
            return None
        except Exception as error:
            # Some operators fail under a probe: one call in a thousand.
            reasons.append(f"cannot be probed: {type(error).__name__}")
            return None
        if form is None:
            return None
        if form.work.idle:
            reasons.append("does not depend on the values of its inputs")
        elif form.work.identity:
            reasons.append("returns its input")
        else:
            return form
        return None
    return None
