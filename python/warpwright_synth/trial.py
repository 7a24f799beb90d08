"""A plan for calling an operator, and calls at given sizes."""

import contextlib
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

from .domains import Draw, draw

# More elements than any plausible result has at the sizes used here.
MAX_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class TensorInput:
    """A tensor argument at one rank."""

    name: str
    rank: int
    dtype: str


@dataclass
class Plan:
    """An expression over tensors and sizes. A slot is a dimension `x.0` or a size `{features}`."""

    call: str
    tensors: list[TensorInput]
    init: str | None = None
    sizes: list[str] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)
    namespace: dict[str, Any] = field(default_factory=dict)

    def slots(self) -> list[str]:
        """All slots in order: dimensions of tensors, then sizes."""
        dims = [f"{t.name}.{i}" for t in self.tensors for i in range(t.rank)]
        return dims + self.sizes

    def shape(self, tensor: TensorInput, sizes: dict[str, int]) -> tuple[int, ...]:
        """The shape of one tensor."""
        return tuple(sizes[f"{tensor.name}.{i}"] for i in range(tensor.rank))


@dataclass
class Result:
    """The results of a call."""

    # Access path (`[0]`, `.values`, empty for the result itself) and tensor.
    outputs: list[tuple[str, torch.Tensor]]
    state: dict[str, tuple[int, ...]]
    inputs: dict[str, torch.Tensor]
    changed_inputs: bool
    # Torch's warning about the call, for example of a deprecation.
    warned: str | None = None


class Unfit(Exception):
    """The call returned something other than tensors of a plausible size."""


def flatten(value: Any, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """Tensors in a result, with the access path of each."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            raise Unfit("not a dense tensor")
        return [(path, value)]
    if isinstance(value, (tuple, list)):
        names = [n for n in dir(type(value)) if not n.startswith(("_", "n_"))]
        known = {id(getattr(value, n)): n for n in names if n not in ("count", "index")}
        found = []
        for i, item in enumerate(value):
            if item is None:
                continue
            named = isinstance(value, tuple) and type(value) is not tuple and id(item) in known
            step = f".{known[id(item)]}" if named else f"[{i}]"
            found += flatten(item, path + step)
        return found
    raise Unfit(f"gives {type(value).__name__}")


def expression(text: str) -> str:
    """The template as Python, with variables in place of placeholders."""
    return re.sub(r"\{(\w+)\}", r"\1", text)


def call(plan: Plan, sizes: dict[str, int], draws: dict[str, Draw], seed: int = 0) -> Result:
    """Calls it with sampled inputs; raises whatever the call raises."""
    generator = torch.Generator().manual_seed(seed)
    inputs = {t.name: draw(plan.shape(t, sizes), draws[t.name], generator) for t in plan.tensors}
    return call_with(plan, sizes, inputs)


def call_with(
    plan: Plan,
    sizes: dict[str, int],
    inputs: dict[str, torch.Tensor],
    seed: int = 0,
    under: Any = None,
    watch: bool = False,
) -> Result:
    """Calls it with these tensors, optionally under a context, and optionally recording warnings.

    A module's parameters are always the same; `seed` determines random numbers within the call.
    """
    scope: dict[str, Any] = {"torch": torch, **plan.namespace, **inputs}
    scope.update({name: sizes[name] for name in plan.sizes})
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    state: dict[str, tuple[int, ...]] = {}
    # `torch.manual_seed` also initialises GPUs, which takes longer than most calls.
    torch.default_generator.manual_seed(0)
    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always" if watch else "ignore")
        if plan.init is not None:
            module = eval(expression(plan.init), scope)
            module.eval()
            state = {n: tuple(p.shape) for n, p in module.named_parameters()}
            scope["module"] = module
        if seed:
            torch.default_generator.manual_seed(seed)
        with under or contextlib.nullcontext():
            value = eval(expression(plan.call), scope)
    outputs = flatten(value)
    if not outputs:
        raise Unfit("gives no tensor")
    if sum(t.numel() for _, t in outputs) > MAX_ELEMENTS:
        raise Unfit("result too large")
    if any(t.numel() == 0 for _, t in outputs):
        raise Unfit("gives an empty tensor")
    changed = any(not torch.equal(before[n], t) for n, t in inputs.items())
    warned = str(said[0].message) if said else None
    return Result(outputs, state, inputs, changed, warned)


def attempt(
    plan: Plan, sizes: dict[str, int], draws: dict[str, Draw], seed: int = 0
) -> Result | None:
    """As `call`; None if it raises."""
    try:
        return call(plan, sizes, draws, seed)
    except MemoryError:
        raise
    except Exception:
        return None


def finite(result: Result | None) -> bool:
    """Whether all results are finite; integers and truth values count as finite."""
    if result is None:
        return False
    for _, tensor in result.outputs:
        if (tensor.is_floating_point() or tensor.is_complex()) and not bool(
            torch.isfinite(tensor).all()
        ):
            return False
    return True
