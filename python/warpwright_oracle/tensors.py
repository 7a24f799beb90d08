"""Values that cross process boundaries: trees whose tensors are places in an arena.

A value is a pair of a tree (JSON: tensors replaced by ``{"tensor": i}``) and a list of places
(``offset`` in bytes, ``strides`` in elements, ``shape``, ``dtype``). The judge moves and reads
places; it passes the tree through unread.
"""

from __future__ import annotations

from typing import Any

import torch

from . import records
from .arguments import Arguments

DTYPES: dict[str, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint64": torch.uint64,
    "uint32": torch.uint32,
    "uint16": torch.uint16,
    "uint8": torch.uint8,
    "bool": torch.bool,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

Place = dict[str, Any]


def flatten(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The tree of ``value``. Appends its tensors to ``tensors`` in order of appearance."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if (named := records.items(value)) is not None:
        made = [[name, flatten(item, tensors)] for name, item in named]
        return {"record": {"name": type(value).__name__, "items": made}}
    if isinstance(value, tuple):
        return {"tuple": [flatten(item, tensors) for item in value]}
    if isinstance(value, Arguments):
        positional = [flatten(item, tensors) for item in value]
        made = [[name, flatten(item, tensors)] for name, item in value.named.items()]
        return {"call": {"positional": positional, "named": made}}
    if isinstance(value, list):
        return {"list": [flatten(item, tensors) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[key_of(k), flatten(v, tensors)] for k, v in value.items()]}
    if isinstance(value, torch.dtype):
        return {"dtype": NAMES[value]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.Size):
        return {"tuple": [{"value": int(n)} for n in value]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise TypeError(f"a {type(value).__name__} cannot be handed to another process")


def key_of(key: Any) -> int | str | None:
    """A dict's key in a tree. Integers stay integers; keys of other types become text."""
    if isinstance(key, int):
        return int(key)
    return key if key is None or isinstance(key, str) else str(key)


def unflatten(tree: Any, tensors: list[torch.Tensor]) -> Any:
    """The inverse of ``flatten``."""
    ((kind, body),) = tree.items()
    if kind == "tensor":
        return tensors[body]
    if kind == "tuple":
        return tuple(unflatten(item, tensors) for item in body)
    if kind == "list":
        return [unflatten(item, tensors) for item in body]
    if kind == "dict":
        return {key: unflatten(item, tensors) for key, item in body}
    if kind == "record":
        given = [(name, unflatten(item, tensors)) for name, item in body["items"]]
        return records.made(body["name"], given)
    if kind == "call":
        named = {name: unflatten(item, tensors) for name, item in body["named"]}
        return Arguments((unflatten(item, tensors) for item in body["positional"]), named)
    if kind == "dtype":
        return DTYPES[body]
    if kind == "device":
        return torch.device(body)
    if kind == "complex":
        return complex(*body)
    if kind == "float":
        return float(body)
    return body


def to_double(value: Any) -> Any:
    """A private copy with floating tensors in float64 and complex ones in complex128. A reference
    may write to it without harm."""
    tensors: list[torch.Tensor] = []
    tree = flatten(value, tensors)
    return unflatten(tree, [widened(t) for t in tensors])


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """A private copy: floating tensors in float64, complex ones in complex128."""
    if tensor.is_complex():
        return tensor.to(torch.complex128, copy=True)
    if tensor.is_floating_point() and tensor.dtype != torch.float64:
        return tensor.double()
    return tensor.clone()


def is_real(dtype: torch.dtype) -> bool:
    """Whether elements are rounded numbers, or pairs of them."""
    return dtype.is_floating_point or dtype.is_complex


def as_reals(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as pairs of real numbers, along an additional dimension; others
    unchanged."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def outline(tree: Any) -> Any:
    """A tree without the values of its numbers, which may differ between calls."""
    ((kind, body),) = tree.items()
    if kind in ("tuple", "list"):
        return {"tuple": [outline(item) for item in body]}
    if kind == "dict":
        return {"dict": [[key, outline(item)] for key, item in body]}
    if kind == "record":
        return {"dict": [[name, outline(item)] for name, item in body["items"]]}
    if kind in ("float", "complex") or (kind == "value" and type(body) in (int, float)):
        return {"number": None}
    return tree


def span(tensor: torch.Tensor) -> int:
    """Number of elements from the first to the last one of ``tensor`` in its storage."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def dense(tensor: torch.Tensor) -> torch.Tensor | None:
    """Each element once, in memory without gaps: the tensor itself if it is dense, else a copy,
    with one element along expanded dimensions. None if elements overlap in another way."""
    once = tensor
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            once = once.narrow(dim, 0, 1)
    if span(once) == once.numel():
        return once
    behind = 0
    for stride, size in sorted(zip(once.stride(), once.shape, strict=True)):
        if size > 1 and stride <= behind:
            return None
        behind += (size - 1) * stride
    return once.contiguous()


def laid_out(made: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """``made`` (with the shape of ``dense(like)``) with the strides of ``like``."""
    if span(like) == like.numel():
        return made
    strides = [s if n > 1 else 1 for n, s in zip(made.shape, like.stride(), strict=True)]
    room = made.new_zeros(1 + sum((n - 1) * s for n, s in zip(made.shape, strides, strict=True)))
    result = room.as_strided(made.shape, strides)
    result.copy_(made)
    return result.expand(like.shape)


def place(tensor: torch.Tensor, offset: int | None) -> Place:
    """The place of ``tensor``; ``offset`` in bytes, None when outside the arena."""
    return {
        "offset": offset,
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
        "dtype": NAMES.get(tensor.dtype, str(tensor.dtype)),
        "bytes": span(tensor) * tensor.element_size(),
    }
