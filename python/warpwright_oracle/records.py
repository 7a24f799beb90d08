"""Values whose items have names and an order: named tuples, dataclasses, and mappings that are
dataclasses too, such as the outputs of ``transformers``."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from types import ModuleType
from typing import Any

Key = tuple[str, tuple[str, ...]]
_types: dict[Key, type] = {}
"""Classes of this process by name and names of items: those of its task, and made ones."""


def items(value: Any) -> list[tuple[str, Any]] | None:
    """Names and items of a record; None for any other value. A mapping among the records omits what
    is None, as its own ``items()`` does."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return None if names is None else list(zip(names, value, strict=True))
    if isinstance(value, type) or not dataclasses.is_dataclass(value):
        return None
    if isinstance(value, dict):
        return [(str(name), item) for name, item in value.items()]
    return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]


def remember(value: Any) -> None:
    """Makes ``made`` return values of the classes of the records in this value."""
    if isinstance(value, dict):
        for item in value.values():
            remember(item)
    elif isinstance(value, list | tuple):
        for item in (*value, *getattr(value, "named", {}).values()):
            remember(item)
    if (named := items(value)) is not None:
        _types[type(value).__name__, tuple(name for name, _ in named)] = type(value)
        for _, item in named:
            remember(item)


def forget() -> None:
    """Forgets the classes of another task."""
    _types.clear()


def share(mine: ModuleType, other: ModuleType) -> None:
    """Gives a module that was loaded again the first one's classes of records, so that both accept
    the same inputs."""
    for name, kind in vars(mine).items():
        ours = isinstance(kind, type) and kind.__module__ == mine.__name__
        if ours and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
            setattr(other, name, kind)


def made(name: str, given: list[tuple[str, Any]]) -> Any:
    """A record with these items: of the class of this name that the process knows, else a named
    tuple."""
    names = tuple(name for name, _ in given)
    kind = _types.get((name, names))
    if kind is None:
        kind = _types[name, names] = namedtuple(name, names, rename=True)  # type: ignore[misc]
    return rebuilt(kind, given)


def rebuilt(kind: type, given: list[tuple[str, Any]]) -> Any:
    """A record of this class with these items."""
    if issubclass(kind, tuple):
        return kind._make(item for _, item in given)  # type: ignore[attr-defined]
    if issubclass(kind, dict) or all(field.init for field in dataclasses.fields(kind)):
        return kind(**dict(given))
    value = object.__new__(kind)
    for name, item in given:
        object.__setattr__(value, name, item)
    return value
