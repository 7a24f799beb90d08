"""Converts probed forms to catalogue entries in their stored form."""

import inspect
import re
from typing import Any

from . import domains
from .forms import Form, Refused, Target, all_forms
from .signature import text_of
from .trial import Plan


def rename(plan: Plan, form: Form, text: str) -> str:
    """The template with symbols in place of size names."""
    names = {t.name for t in plan.tensors}

    def of(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in names or name == "module":
            return match.group(0)
        symbol = form.shapes.name_of(name)
        return symbol if symbol.isdigit() else f"{{{symbol}}}"

    return re.sub(r"\{(\w+)\}", of, text)


def example(target: Target, form: Form) -> str:
    """A self-contained Python example that checks the shapes of its results."""
    small = form.shapes.smallest(4)
    # Different sizes identify the dimensions.
    for i, symbol in enumerate(form.shapes.symbols):
        if symbol.at_most is None and symbol.multiple == 1:
            small[symbol.name] += i
    bounds = {s.at_most for s in form.shapes.symbols if s.at_most}
    for name in bounds:
        symbol = next(s for s in form.shapes.symbols if s.name == name)
        small[name] = symbol.multiple * -(-24 // symbol.multiple)
    sizes = form.shapes.sizes(small)
    lines = (
        [*(target.imports), "import torch", ""]
        if not target.imports
        else ["import torch", *target.imports, ""]
    )
    lines.append("torch.manual_seed(0)")
    for tensor in form.plan.tensors:
        shape = form.plan.shape(tensor, sizes)
        learnt = form.learnt[tensor.name]
        bound = small[learnt[0]] if isinstance(learnt, tuple) else None
        drawn = domains.example_text(learnt if bound is None else "integer", shape, bound)
        lines.append(f"{tensor.name} = {drawn}")

    def filled(text: str) -> str:
        values = {n: str(sizes[n]) for n in form.plan.sizes}
        return re.sub(r"\{(\w+)\}", lambda m: values.get(m.group(1), m.group(1)), text)

    if form.plan.init is not None:
        lines.append(f"module = {filled(form.plan.init)}.eval()")
    lines.append(f"result = {filled(form.plan.call)}")
    from .fit import value_of

    for path, _, dims in form.outputs:
        shape = tuple(value_of(d, small) for d in dims)
        lines.append(f"assert tuple(result{path}.shape) == {shape}")
    return "\n".join(lines) + "\n"


def stored_form(form: Form) -> dict[str, Any]:
    """A form in its stored representation."""
    plan, found = form.plan, form.shapes
    symbols = {}
    for s in found.symbols:
        symbols[s.name] = {
            **({"min": s.minimum} if s.minimum > 2 else {}),
            **({"multiple": s.multiple} if s.multiple > 1 else {}),
            **({"at_most": s.at_most} if s.at_most else {}),
        }
    inputs = []
    for t in plan.tensors:
        learnt = form.learnt[t.name]
        inputs.append(
            {
                "name": t.name,
                "dims": [found.name_of(f"{t.name}.{i}") for i in range(t.rank)],
                **({"dtype": t.dtype} if t.dtype != "float32" else {}),
                **(
                    {"domain": "index", "below": learnt[0]}
                    if isinstance(learnt, tuple)
                    else {"domain": learnt}
                    if learnt != "any"
                    else {}
                ),
            }
        )
    stored: dict[str, Any] = {}
    if plan.init is not None:
        stored["init"] = rename(plan, form, plan.init)
    stored["call"] = rename(plan, form, plan.call)
    if plan.attributes:
        stored["attributes"] = {k: rename(plan, form, v) for k, v in plan.attributes.items()}
    stored["symbols"] = symbols
    stored["inputs"] = inputs
    if form.state:
        stored["parameters"] = [{"name": n, "dims": dims} for n, dims in form.state.items()]
    stored["outputs"] = []
    for k, (path, dtype, dims) in enumerate(form.outputs):
        ranges = form.work.ranges
        known = {"range": ranges[k]} if k < len(ranges) and ranges[k] else {}
        stored["outputs"].append(
            {
                **({"path": path} if path else {}),
                **({"dtype": dtype} if dtype != "float32" else {}),
                "dims": dims,
                **known,
            }
        )
    stored["class"] = form.work.kind
    for flag in ("broadcasts", "steep", "coarse"):
        if getattr(form.work, flag):
            stored[flag] = True
    if form.work.flops_per_output:
        stored["flops_per_output"] = form.work.flops_per_output
    return stored


def entry(target: Target, budget_secs: float) -> dict[str, Any]:
    """The entry of one operator, or `{"name", "reason"}` if the catalogue excludes it."""
    try:
        forms = all_forms(target, budget_secs)
    except Refused as refused:
        return {"name": target.name, "reason": str(refused)}
    if not forms:
        return {
            "name": target.name,
            "reason": "no call that was tried follows a rule that can be told",
        }
    arities = sorted({len(f.plan.tensors) for f in forms})
    signature = " | ".join(text_of(s) for s in target.signatures)
    if target.kind == "module":
        signature += " -> " + text_of(target.forward)
    return {
        "name": target.name,
        "kind": target.kind,
        "signature": signature[:400],
        **({"imports": target.imports} if target.imports else {}),
        "arity": {"min": arities[0], "max": arities[-1]},
        "class": forms[0].work.kind,
        "kernels": forms[0].work.kernels,
        "dtypes": forms[0].dtypes,
        "example": example(target, forms[0]),
        "forms": [stored_form(f) for f in forms],
        # For finding equal operators; not stored.
        "digest": [forms[0].digest, [t.rank for t in forms[0].plan.tensors]],
    }


def undetermined_on_cuda() -> set[str]:
    """Names that torch lists as nondeterministic on a GPU.

    It lists methods (``Tensor.index_copy``, ``Tensor.scatter_add_``) instead of the equivalent
    functions, and modules that are always nondeterministic (``MaxUnpool1d``) without the functions
    that they call.
    """
    import torch

    doc = inspect.getdoc(torch.use_deterministic_algorithms) or ""
    names = set()
    for line in re.split(r"\n\s*\*", doc):
        found = re.search(r":(?:func|class|meth):`~?(torch\.[\w.]+)`", line)
        if not found or "differentiate" in line or "grad" in line:
            continue
        if "CUDA" not in line and "CPU" in line:
            continue
        name = found.group(1).replace("torch.Tensor.", "torch.").rstrip("_")
        names.add(name)
        if "when" not in line and name.startswith("torch.nn."):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removeprefix("torch.nn."))
            names.add("torch.nn.functional." + words.lower())
    return names
