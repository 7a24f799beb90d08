"""Arguments and results as trees: JSON in which tensors are ``{"tensor": i}``."""

from __future__ import annotations

from typing import Any

import torch


def match(value: Any, tree: Any, other: Any, tensors: list[torch.Tensor]) -> bool:
    """Whether ``value`` has the structure of ``tree`` and its numbers, and appends its tensors.

    A number that differs between the two judged trees decides nothing and may be any.
    """
    ((kind, body),) = tree.items()
    if kind == "tensor":
        if not isinstance(value, torch.Tensor):
            return False
        tensors.append(value)
        return True
    if kind in ("list", "tuple"):
        if not isinstance(value, (list, tuple)) or len(value) != len(body):
            return False
        others = other[kind]
        for index, item in enumerate(value):
            if not match(item, body[index], others[index], tensors):
                return False
        return True
    if kind == "dict":
        if not isinstance(value, dict) or len(value) != len(body):
            return False
        for index, (key, item) in enumerate(body):
            if key not in value:
                return False
            if not match(value[key], item, other[kind][index][1], tensors):
                return False
        return True
    if kind == "value":
        if type(value) is not type(body):
            return False
        return value == body or body != other.get(kind)
    if kind == "float":
        if type(value) is not float:
            return False
        wanted = float(body)
        # Comparing numbers can be traced; the text tells zeros apart, and numbers that are none.
        same = value == wanted if wanted and wanted == wanted else repr(value) == body
        return same or tree != other
    if kind in ("dtype", "device"):
        return str(value).removeprefix("torch.") == body
    return False


def build(tree: Any, tensors: list[torch.Tensor]) -> Any:
    """The value of a tree."""
    ((kind, body),) = tree.items()
    if kind == "tensor":
        return tensors[body]
    if kind == "tuple":
        return tuple([build(item, tensors) for item in body])
    if kind == "list":
        return [build(item, tensors) for item in body]
    if kind == "dict":
        return {key: build(item, tensors) for key, item in body}
    if kind == "dtype":
        return getattr(torch, body)
    if kind == "device":
        return torch.device(body)
    if kind == "complex":
        return complex(*body)
    if kind == "float":
        return float(body)
    return body


def flatten(value: Any, tensors: list[torch.Tensor]) -> None:
    """Appends the tensors of a value in order of appearance."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            flatten(item, tensors)
    elif isinstance(value, dict):
        for item in value.values():
            flatten(item, tensors)
