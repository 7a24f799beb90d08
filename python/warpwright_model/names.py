"""Python names in the source of a task."""

from __future__ import annotations

import builtins
import keyword
import re

RESERVED = {"F", "torch", "nn", "self", "math", "extent", "Model", "get_inputs", "get_workloads"}
LONGEST = 48


def identifier(text: str, otherwise: str) -> str:
    """A Python name made of any text."""
    name = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_")[:LONGEST].strip("_")
    name = re.sub(r"_(modules|parameters|buffers)_", "_", name)
    if not name or not name[0].isalpha():
        name = f"{otherwise}_{name}".strip("_")
    reserved = name in RESERVED or keyword.iskeyword(name) or hasattr(builtins, name)
    return f"{name}_" if reserved else name


def snake(text: str) -> str:
    """``LlamaMLP`` as ``llama_mlp``."""
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", text))
    return identifier(text.lower(), "region").lower().strip("_")


class Names:
    """Names that are all different."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def new(self, text: str, otherwise: str = "value") -> str:
        """A name like ``text`` that is not taken."""
        base = name = identifier(text, otherwise)
        number = 1
        while name in self.taken:
            number += 1
            name = f"{base}_{number}"
        self.taken.add(name)
        return name
