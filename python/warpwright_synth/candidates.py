"""Selects the callables of torch that are probed, with the reasons for excluding others."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch

from .forms import Target
from .signature import TENSOR, TENSORS, Argument, from_python, from_schemas

# Names that are excluded, with reasons. The names follow torch's own conventions.
BY_NAME = (
    (r"_$", "changes its input"),
    (r"backward|_jvp$|grad", "part of a derivative"),
    (r"quant|q_per_channel|q_scale|q_zero|qint|fbgemm", "quantised"),
    (r"sparse|coalesce|to_dense|crow_indices|col_indices|row_indices|ccol|resolve_",
     "storage format"),
    (r"cudnn|miopen|mkldnn|xpu|mtia|hip|cuda|cpu$|ipu|vulkan|metal", "for one backend"),
    (r"^rand|rand$|randn|random|normal$|poisson$|bernoulli|multinomial|dropout|rrelu|gumbel|seed|"
     r"generator|fractional", "random"),
    (r"^is_|^are_|allclose|^equal$|can_cast|result_type|promote_types", "answers a question"),
    (r"save|load|from_file|from_numpy|frombuffer|numpy|dlpack|storage|share_memory|pickle|tolist",
     "input or output"),
    (r"names|rename|align_to|align_as|refine", "named dimensions"),
    (r"^as_strided|set_|data_ptr|stride$|element_size|^new_|type$|^type|_like$|^to$|^item$|hook|retain|"
     r"apply$|detach|requires|clone|contiguous|^size$|^dim$|pin_memory|^ndimension|^nelement|numel",
     "about storage, not values"),
    (r"segment_reduce|nested|chalf|bfloat16|half|double|float$|^long|^int$|^short|^char|^byte|^bool$|"
     r"complex|^cfloat|^cdouble|view_as_real|polar|^conj|^imag$|^real$|^angle", "changes the type"),
)  # fmt: skip

# Modules that hold other modules or need them.
CONTAINERS = re.compile(
    r"Module|Sequential|List|Dict|Parallel|Container|Lazy|Loss$|Parameter|Buffer"
)


def left_out(name: str, target: Any) -> str | None:
    """The reason why `name` is not probed; None if it is probed."""
    if name.startswith("_"):
        return "private"
    for pattern, reason in BY_NAME:
        # Names of classes have capitals.
        flags = re.IGNORECASE if reason == "random" else 0
        if re.search(pattern, name, flags):
            return reason
    doc = inspect.getdoc(target) or ""
    # torch.special has aliases of functions in torch; the usual name is kept.
    if re.search(r"Alias (for|of) :", doc[:400]) and "torch.special." not in doc[:400]:
        return "an alias: " + doc.strip().splitlines()[0][:80]
    if re.search(r"deprecated", doc[:300], re.IGNORECASE):
        return "deprecated"
    return None


def signatures_of(name: str, prefix: str, target: Any) -> list[list[Argument]]:
    """How a function of torch can be called."""
    python = from_python(target)
    if python is not None and any(a.kind in (TENSOR, TENSORS) for a in python):
        return [python]
    found = from_schemas(prefix + name, target)
    return [s for s in found if any(a.kind in (TENSOR, TENSORS) for a in s)]


def functions() -> Iterator[tuple[str, Target | None, str]]:
    """Functions and methods by name, each with its target, or with the reason why it is not
    probed."""
    spaces = (
        ("torch.nn.functional", torch.nn.functional, ""),
        ("torch", torch, ""),
        ("torch.special", torch.special, "special_"),
        ("torch.linalg", torch.linalg, "linalg_"),
        ("torch.fft", torch.fft, "fft_"),
        ("torch.Tensor", torch.Tensor, ""),
    )
    overridable = {id(f) for fs in torch.overrides.get_overridable_functions().values() for f in fs}
    known: dict[int, str] = {}
    for space, owner, prefix in spaces:
        for name in sorted(dir(owner)):
            target = getattr(owner, name, None)
            full = f"{space}.{name}"
            if not callable(target) or inspect.isclass(target) or name.startswith("_"):
                continue
            schemas = torch._C._jit_get_schemas_for_operator(f"aten::{prefix}{name}")
            if id(target) not in overridable and not schemas:
                continue
            if id(target) in known:
                yield full, None, f"an alias: {known[id(target)]}"
                continue
            if space == "torch.Tensor" and (hasattr(torch, name) or hasattr(spaces[0][1], name)):
                continue
            reason = left_out(name, target)
            if reason is None and space == "torch" and not inspect.getdoc(target):
                reason = "not documented"
            if reason is not None:
                yield full, None, reason
                continue
            signatures = signatures_of(name, prefix, target)
            if not signatures:
                yield full, None, "no signature with a tensor"
                continue
            known[id(target)] = full
            kind = "method" if space == "torch.Tensor" else "function"
            callee = name if kind == "method" else full
            yield full, Target(full, kind, callee, signatures), ""


def modules() -> Iterator[tuple[str, Target | None, str]]:
    """Classes of torch.nn with the arguments of their constructors and `forward`."""
    for name in sorted(dir(torch.nn)):
        cls = getattr(torch.nn, name)
        full = f"torch.nn.{name}"
        if not inspect.isclass(cls) or not issubclass(cls, torch.nn.Module):
            continue
        if CONTAINERS.search(name) and not name.endswith("Loss"):
            yield full, None, "holds other modules or parameters"
            continue
        reason = left_out(name, None) or ("random" if "Dropout" in name else None)
        if reason is not None:
            yield full, None, reason
            continue
        bare = cls.__init__ is torch.nn.Module.__init__
        init, forward = [] if bare else from_python(cls), from_python(cls.forward, skip_first=True)
        if init is None or not forward:
            yield full, None, "no signature with a tensor"
            continue
        yield full, Target(full, "module", full, [init], forward), ""


def all_of_torch() -> tuple[list[Target], list[dict[str, str]]]:
    """The targets to probe, in a fixed order, and the excluded names with reasons."""
    targets, out = [], []
    for full, target, reason in (*functions(), *modules()):
        if target is None:
            out.append({"name": full, "reason": reason})
        else:
            targets.append(target)
    return targets, out
