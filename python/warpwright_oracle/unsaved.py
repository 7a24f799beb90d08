"""Detects values that a reference computes with but that its ``state_dict`` lacks. A candidate gets
weights by name, and would sample any other random value itself."""

from __future__ import annotations

import contextlib
import sys
import types
from dataclasses import dataclass
from typing import Any

import torch

from . import records
from .channel import Refusal
from .reference import Reference, seed_everything

DEPTH = 6
"""Depth to which a value is searched for tensors."""
OWN = frozenset(vars(torch.nn.Module()))
"""Attributes of every module."""


@dataclass(frozen=True)
class Another:
    """A model with the weights of a first one, in which all other random values differ."""

    model: torch.nn.Module
    spare: torch.nn.Module | None
    """Another such model, to be run once, if values outside the ``state_dict`` differ."""
    differ: list[str]
    """Names of these values."""

    def refusal(self) -> Refusal:
        """The refusal of a reference whose results depend on them."""
        named = ", ".join(sorted(self.differ)[:4])
        return Refusal(
            "weights",
            f"its results depend on random values outside its state_dict ({named}), which no "
            "candidate can be given: make them parameters or persistent buffers of the model",
        )


def another(reference: Reference, source: str, init: torch.nn.Module, seed: int) -> Another:
    """Makes such a model: runs module and constructor with another seed. If that fails, the seed is
    the same. Values that are derived from weights differ too, so the results must decide."""
    with contextlib.suppress(Exception):
        seed_everything(seed + 1)
        afresh = Reference(source, str(reference.device), reference.mode, "model_again")
        records.share(reference.module, afresh.module)
        afresh.init = reference.init
        model = afresh.build(seed + 1)
        mine, theirs = _held(init), _held(model)
        differ = [n for n, value in mine.items() if n in theirs and not _equal(value, theirs[n])]
        weights = init.state_dict()
        model.load_state_dict(weights, strict=True)
        # Run the spare instead of the model: a model may cache values in its first call, and its
        # weights change later.
        spare = afresh.build(seed + 1) if differ else None
        if spare is not None:
            spare.load_state_dict(weights, strict=True)
        return Another(model, spare, differ)
    return Another(reference.build(seed), None, [])


def _held(model: torch.nn.Module) -> dict[str, Any]:
    """Tensors and numbers that the model or its module hold outside the ``state_dict``, by name."""
    found: dict[str, Any] = {}
    saved = {t.untyped_storage()._cdata for t in model.state_dict().values() if _is_plain(t)}

    def walk(name: str, value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            if _is_plain(value) and value.untyped_storage()._cdata not in saved:
                found[name] = value
        elif isinstance(value, int | float | complex):
            found[name] = value
        elif depth == DEPTH:
            return
        elif isinstance(value, list | tuple | set):
            for i, item in enumerate(value):
                walk(f"{name}[{i}]", item, depth + 1)
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(f"{name}[{key!r}]", item, depth + 1)
        elif isinstance(value, torch.nn.Module):
            for part, tensor in (*value.named_parameters(), *value.named_buffers()):
                walk(f"{name}.{part}", tensor, depth + 1)
        elif isinstance(value, types.FunctionType):
            names = value.__code__.co_freevars
            for free, cell in zip(names, value.__closure__ or (), strict=True):
                with contextlib.suppress(ValueError):  # a cell may be empty
                    walk(f"{name}.{free}", cell.cell_contents, depth + 1)

    for path, part in model.named_modules():
        prefix = f"{path}." if path else ""
        for attribute, value in vars(part).items():
            if attribute not in OWN:
                walk(prefix + attribute, value, 0)
        for attribute in part._non_persistent_buffers_set:
            walk(prefix + attribute, part._buffers.get(attribute), 0)
    name = type(model).__module__
    for attribute, value in vars(sys.modules[name]).items():
        if isinstance(value, type) and value.__module__ == name:
            for inner, kept in vars(value).items():
                if not inner.startswith("__"):
                    walk(f"{attribute}.{inner}", kept, 0)
        elif not attribute.startswith("__") and not isinstance(value, types.FunctionType):
            walk(attribute, value, 0)
    return found


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_meta


def _equal(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
        same = mine.shape == theirs.shape and mine.dtype == theirs.dtype
        return same and torch.equal(mine.cpu(), theirs.cpu())
    return isinstance(mine, torch.Tensor) == isinstance(theirs, torch.Tensor) and mine == theirs
