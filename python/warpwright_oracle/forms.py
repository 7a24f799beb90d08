"""Which forms of inputs and outputs a task may have: those that can be handed to a candidate and
stay equal between samples. Others are refused by name before any candidate runs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import records
from .arguments import Arguments
from .channel import Refusal
from .tensors import NAMES, flatten, key_of

WANTED = "it must return a list of forward's arguments"
PLAIN = (bool, int, float, complex, str)
RETURNED = "tensors, numbers, strings, None, and lists, tuples, dicts or dataclasses of them"


def arguments(made: Any, forward: Callable[..., Any]) -> list[Any]:
    """The result of ``get_inputs()`` as a list of ``forward``'s arguments. A dict names them; so
    does one behind a list of them (``[[x], {"scale": 2.0}]``) or at a list's end (``[x, {"scale":
    2.0}]``), if ``forward`` does not accept the list as it is, or the names are those of its
    parameters."""
    if isinstance(made, dict):
        return _by_name([], made, forward)
    if isinstance(made, tuple | list):
        given = list(made)
        match given:
            case [list() | tuple() as first, dict() as named] if _paired(first, named, forward):
                return _by_name(list(first), named, forward)
            case [*first, dict() as named] if _paired(first, named, forward):
                return _by_name(first, named, forward)
        return given
    if isinstance(made, (torch.Tensor, *PLAIN)):
        return [made]
    name = "None" if made is None else f"a {type(made).__name__}"
    raise Refusal("form", f"get_inputs returns {name}: {WANTED}")


def drawn(make: Callable[[], Any]) -> Any:
    """The result of a function, or all values that it yields."""
    made = make()
    return list(made) if isinstance(made, Iterator) else made


def _by_name(given: list[Any], named: dict[Any, Any], forward: Callable[..., Any]) -> list[Any]:
    """The values in the order of the parameters, so that a candidate is called like the reference.
    A parameter between them without a value gets its default. Those that ``forward`` takes by
    keyword only stay named."""
    signature = inspect.signature(forward)
    try:
        bound = signature.bind(None, *given, **named)
    except TypeError as error:
        text = f"get_inputs returns a dict, whose keys must name forward's arguments: {error}"
        raise Refusal("form", text) from error
    known = set(bound.arguments)
    bound.apply_defaults()
    values: list[Any] = []
    keywords: dict[str, Any] = {}
    count = 0
    for parameter in signature.parameters.values():
        value = bound.arguments[parameter.name]
        if parameter.kind == parameter.VAR_POSITIONAL:
            values += value
            count = len(values) if value else count
        elif parameter.kind == parameter.VAR_KEYWORD:
            keywords |= value
        elif parameter.kind == parameter.KEYWORD_ONLY:
            if parameter.name in known:
                keywords[parameter.name] = value
        else:
            values.append(value)
            if parameter.name in known:
                count = len(values)
    values = values[1:count]  # without self
    return Arguments(values, keywords) if keywords else values


def constructor(init: Any, make: Callable[..., Any]) -> Any:
    """The result of ``get_init_inputs()``, as a list or a dict of the constructor's arguments. Some
    collections return ``[positional, named]``. The two are unpacked if the constructor does not
    accept them as they are, or if the names are those of its parameters."""
    if init is None:
        return []
    if not isinstance(init, list | tuple | dict):
        return [init]
    match init:
        case [list() | tuple() as given, dict() as named] if _paired(
            given, named, make, bound=True
        ):
            if not given:
                return dict(named)
            if not named:
                return list(given)
            bound = inspect.signature(make).bind(*given, **named)
            return list(bound.args) if not bound.kwargs else dict(bound.arguments)
    return init


def _paired(
    given: Any, named: dict[Any, Any], make: Callable[..., Any], *, bound: bool = False
) -> bool:
    """Whether values and a dict behind them are arguments and named arguments. ``bound``: without
    the parameter ``self``."""
    signature = inspect.signature(make)
    owner = [] if bound else [None]

    def takes(*values: Any, **more: Any) -> bool:
        try:
            signature.bind(*owner, *values, **more)
        except TypeError:
            return False
        return True

    if not all(isinstance(name, str) for name in named) or not takes(*given, **named):
        return False
    names = set(signature.parameters)
    as_they_are = takes(given, named) if bound else takes(*given, named)
    return not as_they_are or (bool(named) and set(named) <= names)


def carried(value: Any, what: str, *, returned: bool = False) -> None:
    """Raises Refusal, which names the place, where a value cannot be handed to another process
    unchanged. A ``returned`` value is only compared, so a dict's keys may be of other types."""
    if isinstance(value, torch.Tensor):
        _carried_tensor(value, what)
    elif isinstance(value, torch.Size):
        return
    elif (named := records.items(value)) is not None:
        for name, item in named:
            carried(item, f"{what}.{name}", returned=returned)
    elif isinstance(value, dict):
        _carried_keys(value, what, returned=returned)
        for key, item in value.items():
            carried(item, f"{what}[{_quoted(key)}]", returned=returned)
    elif isinstance(value, Arguments):
        for i, item in enumerate(value):
            carried(item, f"{what}[{i}]", returned=returned)
        for name, item in value.named.items():
            carried(item, f"{what}[{_quoted(name)}]", returned=returned)
    elif isinstance(value, tuple | list):
        for i, item in enumerate(value):
            carried(item, f"{what}[{i}]", returned=returned)
    elif value is not None and not isinstance(value, PLAIN):
        if isinstance(value, torch.dtype) and value in NAMES:
            return
        if isinstance(value, torch.device):
            return
        kind = f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
        if returned:
            text = f"{what} is a {kind}, which cannot be compared: return {RETURNED}"
            raise Refusal("form", text)
        text = f"{what} is a {kind}, which cannot be handed to another process"
        raise Refusal("form", f"{text}: use tensors, numbers, strings, lists, tuples and dicts")


def _carried_keys(value: dict[Any, Any], what: str, *, returned: bool) -> None:
    """Raises Refusal where a dict's keys cannot be told apart in another process."""
    for key in value:
        if not (returned or key is None or isinstance(key, str | int)):
            text = f"{what} is a dict with keys of type {type(key).__name__}"
            raise Refusal("form", f"{text}: keys must be str or int")
    if len({key_of(key) for key in value}) < len(value):
        text = f"{what} is a dict with different keys of the same text, which cannot be compared"
        raise Refusal("form", f"{text}: use keys of type str or int")


def _quoted(key: Any) -> str:
    return json.dumps(key, ensure_ascii=False) if isinstance(key, str) else str(key)


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
    if kind == "record":
        return [kind, [[name, _nesting(item)] for name, item in body["items"]]]
    if kind == "call":
        named = [[name, _nesting(item)] for name, item in body["named"]]
        return [kind, [_nesting(item) for item in body["positional"]], named]
    if kind == "value":
        return ["float" if isinstance(body, float) else type(body).__name__]
    return [kind]
