"""Why a model cannot be divided into regions, or one module not written as a task."""

from __future__ import annotations


class Failed(Exception):
    """The request fails: the user's files, the model or its inputs are at fault."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Untraceable(Exception):
    """One module does not become a task; the modules in it still may."""


def told(error: BaseException, most: int = 300) -> str:
    """The type and the first lines of an exception, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {' '.join(lines[:3])}" if lines else type(error).__name__
    return text if len(text) <= most else text[: most - 3] + "..."
