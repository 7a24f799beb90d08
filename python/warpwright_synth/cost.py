"""Determines an operator's kind of work: from the dependence of the result's elements on the
input's, and from the kernels that torch dispatches to."""

import random
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from .domains import DRAWS, Draw
from .fit import fit, value_of
from .shapes import Shapes
from .trial import Plan, Result, attempt, call, call_with, finite

# Inputs larger than this are not perturbed element by element.
MAX_PERTURBED = 256

# Kinds of work that the dispatched kernels reveal, the most specific first.
KERNELS = (
    ("attention", ("scaled_dot_product", "attention")),
    ("recurrent", ("lstm", "gru", "rnn")),
    ("convolution", ("convolution",)),
    ("transform", ("fft", "stft")),
    (
        "factorisation",
        (
            "linalg_svd",
            "linalg_eig",
            "linalg_qr",
            "linalg_lu",
            "linalg_ldl",
            "linalg_inv",
            "linalg_solve",
            "linalg_cholesky",
            "linalg_det",
            "_linalg",
            "linalg_matrix_exp",
            "linalg_lstsq",
            "cholesky",
            "linalg_householder",
            "triangular_solve",
            "lu_unpack",
            "geqrf",
            "ormqr",
        ),
    ),
    ("sort", ("sort", "topk", "kthvalue", "median", "mode", "searchsorted", "bucketize", "unique")),
)


@dataclass
class Work:
    """Measurements of one form."""

    kind: str
    kernels: list[str]
    flops_per_output: str | None
    # Inputs whose values do not affect the results.
    idle: list[str]
    identity: bool
    broadcasts: bool
    steep: bool
    coarse: bool
    ranges: list[str | None]


class Kernels(TorchDispatchMode):
    """Records the dispatched kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def flatten(result: Result) -> torch.Tensor:
    """All results as one float64 vector."""
    parts = [t for _, t in result.outputs]
    return torch.cat(
        [
            torch.view_as_real(t).reshape(-1).double() if t.is_complex() else t.reshape(-1).double()
            for t in parts
        ]
    )


def redrawn(tensor: torch.Tensor, values: Draw, generator: torch.Generator) -> torch.Tensor:
    """A tensor with another value for each element."""
    if tensor.dtype == torch.bool:
        return ~tensor
    if tensor.dtype == torch.int64:
        span = max(int(values.high) - int(values.low), 1)
        return (tensor - int(values.low) + 1) % span + int(values.low)
    return torch.rand(tensor.shape, generator=generator) * (values.high - values.low) + values.low


def idle_inputs(
    plan: Plan, sizes: dict[str, int], first: Result, draws: dict[str, Draw]
) -> list[str]:
    """Tensors whose values do not affect the results."""
    idle = []
    base = flatten(first)
    generator = torch.Generator().manual_seed(7)
    for tensor in plan.tensors:
        same = True
        for _ in range(3):
            other = redrawn(first.inputs[tensor.name], draws[tensor.name], generator)
            again = call_with(plan, sizes, {**first.inputs, tensor.name: other})
            if not torch.equal(flatten(again), base):
                same = False
                break
        if same:
            idle.append(tensor.name)
    return idle


def dependence(
    plan: Plan, sizes: dict[str, int], first: Result, draws: dict[str, Draw], name: str
) -> torch.Tensor | None:
    """Truth table: does output j (of the first result) change when element i of the input does?"""
    tensor = first.inputs[name]
    if tensor.numel() > MAX_PERTURBED or not tensor.is_floating_point():
        return None
    base = first.outputs[0][1].reshape(-1)
    table = torch.zeros(tensor.numel(), base.numel(), dtype=torch.bool)
    generator = torch.Generator().manual_seed(11)
    for _ in range(6 if tensor.numel() <= 40 else 2):
        other = redrawn(tensor, draws[name], generator).reshape(-1)
        for i in range(tensor.numel()):
            changed = tensor.clone().reshape(-1)
            changed[i] = other[i]
            inputs = {**first.inputs, name: changed.reshape(tensor.shape)}
            again = call_with(plan, sizes, inputs).outputs[0][1].reshape(-1)
            if again.shape != base.shape:
                return None
            table[i] |= again != base
    return table


def kind_of_table(table: torch.Tensor, first: Result, name: str, tensors: int) -> str:
    """The kind of work that a truth table shows."""
    source, result = first.inputs[name], first.outputs[0][1]
    per_output, per_input = table.sum(0), table.sum(1)
    values = {v for t in first.inputs.values() for v in t.reshape(-1).tolist()}
    moved = set(result.reshape(-1).tolist()) <= values | {0.0} and result.dtype == source.dtype
    indexed = any(t.dtype == torch.int64 for t in first.inputs.values())
    if int(per_output.max()) <= 1:
        same_place = table.shape[0] == table.shape[1] and bool(
            (table & ~torch.eye(len(table), dtype=torch.bool)).sum() == 0
        )
        if moved and (not same_place or result.shape != source.shape):
            return "gather" if indexed else "layout"
        if indexed and tensors > 1 and not same_place:
            return "gather"
        return "elementwise"
    if indexed and int(per_input.max()) <= 1:
        return "scatter"
    if result.shape == source.shape:
        lower = bool((table & torch.tril(torch.ones_like(table), -1)).sum() == 0)
        upper = bool((table & torch.triu(torch.ones_like(table), 1)).sum() == 0)
        if (lower or upper) and int(per_output.unique().numel()) > 1:
            return "scan"
        # Row operators mix all elements of a row equally; windows overlap instead.
        reach = table.float() @ table.float() > 0
        alike = bool((reach == table).float().mean() > 0.97)
        return "normalisation" if alike or bool(table.all()) else "window"
    if (
        tensors == 1
        and result.dim() == source.dim()
        and result.numel() < source.numel()
        and result.numel() > 1
    ):
        kept = [n == m for n, m in zip(source.shape, result.shape, strict=True)]
        if int(per_output.max()) * 2 <= source.numel() and not all(
            k or m == 1 for k, m in zip(kept, result.shape, strict=True)
        ):
            return "pooling"
    if tensors > 1 and result.dim() >= 2 and int(per_input.max()) > 1:
        return "pairwise"
    if result.numel() < source.numel() or int(per_input.max()) == 1:
        return "reduction"
    return "pairwise" if tensors > 1 else "resample"


def uneven(plan: Plan, shapes: Shapes, inner: int) -> dict[str, int]:
    """Small sizes: 2 and 3 for the outer dimensions, about `inner` for the dimensions of the
    operation."""
    ranks = {t.name: t.rank for t in plan.tensors}
    sizes = shapes.smallest(inner)
    for i, symbol in enumerate(shapes.symbols):
        name, _, place = symbol.slots[0].rpartition(".")
        outer = ranks.get(name, 0) >= 3 and int(place) < ranks[name] - min(2, ranks[name] - 2)
        if symbol.at_most is None and symbol.multiple == 1:
            sizes[symbol.name] = max(symbol.minimum, 2 + int(place) if outer else inner + i % 2)
    return sizes


def measure(plan: Plan, shapes: Shapes, draws: dict[str, Draw]) -> Work:
    """Calls the form at small sizes and measures its work."""
    small = shapes.sizes(shapes.smallest(4))
    first = call(plan, small, draws)
    kernels = Kernels()
    counts, samples = [], []
    for seed in range(8):
        sample = shapes.sample(random.Random(seed), 9)
        counter = FlopCounterMode(display=False)
        with counter:
            result = call(plan, shapes.sizes(sample), draws)
        if seed == 3 and not counter.get_total_flops():
            break
        per_output = counter.get_total_flops() / result.outputs[0][1].numel()
        counts.append(per_output)
        samples.append(sample)
    call_with(plan, small, first.inputs, under=kernels)
    flops = None
    if any(counts) and all(c == int(c) for c in counts):
        names = [s.name for s in shapes.symbols]
        text = fit(names, samples[:6], [int(c) for c in counts[:6]])
        if text is not None and all(
            value_of(text, s) == c for s, c in zip(samples[6:], counts[6:], strict=True)
        ):
            flops = text
    names = sorted(set(kernels.names))
    kind = next((k for k, words in KERNELS if any(w in n for w in words for n in names)), None)
    if kind is None and any(counts):
        kind = "product"
        if any("softmax" in n for n in names) and sum(n in ("bmm", "baddbmm") for n in names):
            kind = "attention"
    idle = idle_inputs(plan, small, first, draws)
    floats = [t.name for t in plan.tensors if t.dtype == "float32" and t.name not in idle]
    identity = (
        len(first.inputs) == 1
        and (source := next(iter(first.inputs.values()))).shape == first.outputs[0][1].shape
        and torch.equal(source, first.outputs[0][1])
    )
    if kind is None and floats:
        floats.sort(key=lambda n: -first.inputs[n].numel())
        tables = {}
        for name in floats[:2]:
            for inner in (7, 6, 4, 3, 2):
                tiny = shapes.sizes(uneven(plan, shapes, inner))
                at_tiny = call(plan, tiny, draws)
                table = dependence(plan, tiny, at_tiny, draws, name)
                if table is not None:
                    break
            if table is not None and bool(table.any()):
                tables[name] = kind_of_table(table, at_tiny, name, len(plan.tensors))
        # The part that mixes elements dominates the cost.
        found = list(tables.values())
        kind = next((k for k in found if k != "elementwise"), found[0] if found else None)
    if kind is None:
        indices = [t for t in plan.tensors if t.dtype == "int64"]
        kind = "gather" if 0 < len(indices) < len(plan.tensors) else "elementwise"
    broadcasts = kind == "elementwise" and broadcasts_ones(plan, small, first)
    large = {
        n: Draw("float32", -1000.0, 1000.0) if DRAWS["any"] == d else d for n, d in draws.items()
    }
    steep = not finite(attempt(plan, small, large))
    rank = max(t.rank for t in plan.tensors)
    many = shapes.sizes(shapes.smallest({1: 64, 2: 8}.get(rank, 4)))
    result = call(plan, many, draws).outputs[0][1]
    coarse = result.numel() >= 16 and int(result.unique().numel()) * 4 < result.numel()
    coarse = coarse and kind not in ("layout", "gather")
    ranges = learn_ranges(plan, shapes, draws)
    return Work(kind, names, flops, idle, identity, broadcasts, steep, coarse, ranges)


def broadcasts_ones(plan: Plan, sizes: dict[str, int], first: Result) -> bool:
    """Whether any dimension of any input may be 1 without changing the result's shape."""
    shapes_of = {tuple(t.shape) for t in first.inputs.values()}
    if len(first.inputs) < 2 or len(shapes_of) > 1:
        return False
    for name, tensor in first.inputs.items():
        for i in range(tensor.dim()):
            try:
                narrow = call_with(plan, sizes, {**first.inputs, name: tensor.narrow(i, 0, 1)})
            except Exception:
                return False
            if narrow.outputs[0][1].shape != first.outputs[0][1].shape:
                return False
    return True


def learn_ranges(plan: Plan, shapes: Shapes, draws: dict[str, Draw]) -> list[str | None]:
    """For each result, the narrowest range that contains all values of several calls."""
    spans = ((-30.0, 30.0), (-30.0, -0.5), (0.5, 30.0))
    wider = [
        {n: Draw("float32", *span) if DRAWS["any"] == d else d for n, d in draws.items()}
        for span in spans
    ]
    low: list[float] = []
    high: list[float] = []
    for seed in range(8):
        chosen = [draws, *wider][seed % 4]
        sample = shapes.sizes(shapes.sample(random.Random(seed), 9))
        result = attempt(plan, sample, chosen, seed)
        if result is None or not finite(result):
            continue
        for k, (_, tensor) in enumerate(result.outputs):
            if k == len(low):
                low.append(float("inf"))
                high.append(float("-inf"))
            if tensor.is_complex():
                low[k] = float("-inf")
                continue
            low[k] = min(low[k], float(tensor.min()))
            high[k] = max(high[k], float(tensor.max()))
    found: list[str | None] = []
    for a, b in zip(low, high, strict=True):
        if a >= 0 and b <= 1:
            found.append("closed_unit")
        elif a >= -1 and b <= 1:
            found.append("closed_unit_ball")
        else:
            found.append("non_negative" if a >= 0 else None)
    return found
