"""Which forms of inputs and outputs a task may have: those that can be handed to a candidate and
stay equal between samples. Others are refused by name before any candidate runs."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .channel import Refusal
from .tensors import NAMES, flatten, is_record

WANTED = "it must return a list of forward's arguments"
PLAIN = (bool, int, float, complex, str)


def positional(made: Any, forward: Callable[..., Any]) -> list[Any]:
    """The result of ``get_inputs()`` as a list of ``forward``'s arguments. A dict names them."""
    if isinstance(made, dict):
        return _by_name(made, forward)
    if isinstance(made, tuple | list):
        return list(made)
    if isinstance(made, (torch.Tensor, *PLAIN)):
        return [made]
    name = "None" if made is None else f"a {type(made).__name__}"
    raise Refusal("form", f"get_inputs returns {name}: {WANTED}")


def drawn(make: Callable[[], Any]) -> Any:
    """The result of a function, or all values that it yields."""
    made = make()
    return list(made) if isinstance(made, Iterator) else made


def _by_name(made: dict[Any, Any], forward: Callable[..., Any]) -> list[Any]:
    """The values in the order of the parameters, so that a candidate is called like the reference.
    A parameter between them without a value gets its default."""
    signature = inspect.signature(forward)
    try:
        bound = signature.bind(None, **made)
    except TypeError as error:
        text = f"get_inputs returns a dict, whose keys must name forward's arguments: {error}"
        raise Refusal("form", text) from error
    bound.apply_defaults()
    values: list[Any] = []
    count = 0
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            if bound.arguments[parameter.name]:
                text = f"get_inputs names arguments that forward takes as *{parameter.name}"
                raise Refusal("form", f"{text}: {WANTED}")
            continue
        if parameter.kind == parameter.KEYWORD_ONLY:
            if parameter.name in made:
                text = f"get_inputs names {parameter.name}, which forward takes by keyword only"
                raise Refusal("form", f"{text}: {WANTED}")
            continue
        values.append(bound.arguments[parameter.name])
        if parameter.name in made:
            count = len(values)
    return values[1:count]


def constructor(init: Any, make: Callable[..., Any]) -> Any:
    """The result of ``get_init_inputs()``, as a list or a dict of the constructor's arguments. Some
    collections return ``[positional, named]``. The two are unpacked if the constructor does not
    accept them as they are, or if the names are those of its parameters."""
    if init is None:
        return []
    if not isinstance(init, list | tuple | dict):
        return [init]
    match init:
        case [list() | tuple() as given, dict() as named] if _paired(given, named, make):
            if not given:
                return dict(named)
            if not named:
                return list(given)
            bound = inspect.signature(make).bind(*given, **named)
            return list(bound.args) if not bound.kwargs else dict(bound.arguments)
    return init


def _paired(given: Any, named: dict[Any, Any], make: Callable[..., Any]) -> bool:
    signature = inspect.signature(make)

    def takes(*values: Any, **more: Any) -> bool:
        try:
            signature.bind(*values, **more)
        except TypeError:
            return False
        return True

    if not all(isinstance(name, str) for name in named) or not takes(*given, **named):
        return False
    names = set(signature.parameters)
    return not takes(given, named) or (bool(named) and set(named) <= names)


def carried(value: Any, what: str, *, returned: bool = False) -> None:
    """Raises Refusal where a value cannot be handed to another process unchanged. A ``returned``
    value is only compared: its field names and key types do not matter."""
    if isinstance(value, torch.Tensor):
        _carried_tensor(value, what)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) and not returned:
                kind = type(key).__name__
                text = f"{what} is a dict with keys of type {kind}: keys must be str"
                raise Refusal("form", text)
            carried(item, f"{what}[{key!r}]", returned=returned)
    elif isinstance(value, torch.Size):
        return
    elif isinstance(value, tuple | list):
        if hasattr(value, "_fields") and not returned:
            name = type(value).__name__
            text = f"{what} is a named tuple ({name}), which a candidate would get without names"
            raise Refusal("form", f"{text}: use a tuple")
        for i, item in enumerate(value):
            carried(item, f"{what}[{i}]", returned=returned)
    elif returned and is_record(value):
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            carried(item, f"{what}.{field.name}", returned=returned)
    elif value is not None and not isinstance(value, PLAIN):
        if isinstance(value, torch.dtype) and value in NAMES:
            return
        if isinstance(value, torch.device):
            return
        kind = f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
        text = f"{what} is a {kind}, which cannot be handed to another process"
        raise Refusal("form", f"{text}: use tensors, numbers, strings, lists, tuples and dicts")


def _carried_tensor(tensor: torch.Tensor, what: str) -> None:
    kind = None
    if tensor.is_nested:
        kind = "a nested tensor"
    elif tensor.is_quantized or tensor.dtype not in NAMES:
        kind = f"a tensor of {str(tensor.dtype).removeprefix('torch.')}"
    elif tensor.layout != torch.strided:
        kind = f"a sparse tensor ({str(tensor.layout).removeprefix('torch.')})"
    if kind is not None:
        known = ", ".join(NAMES.values())
        text = f"{what} is {kind}, which cannot be handed to another process"
        raise Refusal("form", f"{text}: use dense tensors of {known}")


class Form:
    """The structure of a value: its nesting, and the shapes and dtypes of its tensors. Numbers and
    strings may differ."""

    def __init__(self, value: Any) -> None:
        tensors: list[torch.Tensor] = []
        self.tree = flatten(value, tensors)
        self.nesting = _nesting(self.tree)
        self.kinds = [(tuple(t.shape), NAMES.get(t.dtype, str(t.dtype))) for t in tensors]

    def must_be(self, other: Form, what: str) -> None:
        """Raises Refusal where another sample of ``what`` has another structure."""
        if self.nesting != other.nesting or len(self.kinds) != len(other.kinds):
            raise varying(f"{what} is built differently from draw to draw")
        for i, (mine, theirs) in enumerate(zip(self.kinds, other.kinds, strict=True)):
            if mine != theirs:
                (one, dtype), (two, also) = theirs, mine
                text = f"tensor {i} is {list(one)} {dtype} in one and {list(two)} {also} in another"
                raise varying(f"{what} changes its shape from draw to draw: {text}")


def varying(message: str) -> Refusal:
    """The refusal of a task whose structure varies between samples."""
    return Refusal("varying", f"{message}: only numbers in tensors may vary")


def _nesting(tree: Any) -> Any:
    ((kind, body),) = tree.items()
    if kind in ("tuple", "list"):
        return [kind, [_nesting(item) for item in body]]
    if kind == "dict":
        return [kind, [[key, _nesting(item)] for key, item in body]]
    if kind == "value":
        return ["float" if isinstance(body, float) else type(body).__name__]
    return [kind]
