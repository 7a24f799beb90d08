"""Positional and keyword arguments of one call of ``forward``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class Arguments(list[Any]):
    """Positional arguments, and those that ``forward`` takes by keyword. Without the latter, a
    plain list is used."""

    def __init__(self, positional: Iterable[Any], named: dict[str, Any]) -> None:
        super().__init__(positional)
        self.named = named


def invoke(call: Callable[..., Any], given: list[Any]) -> Any:
    """The result of a call."""
    if isinstance(given, Arguments):
        return call(*given, **given.named)
    return call(*given)


def are_named(sets: Iterable[Any]) -> bool:
    """Whether some call of a window has named arguments."""
    return any(isinstance(given, Arguments) for given in sets)
