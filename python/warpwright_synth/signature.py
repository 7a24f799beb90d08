"""A callable's arguments, as torch declares them: by operator schema or Python annotations."""

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

# Kinds of argument. Sizes, flags and words are attributes; the first two are data.
TENSOR = "tensor"
TENSORS = "tensors"

# Names of tensors without annotation.
TENSOR_NAMES = re.compile(
    r"^(x|y|z|q|k|v|cos|sin|input|inputs|other|tensor|hidden_states?|hidden|states|query|key|value"
    r"|query_states|key_states|value_states|features|feature|pixel_values|residual|gate|image"
    r"|attention_scores|inputs_embeds|embeddings?|sequence|freqs|feature_map|target|src|tgt)$"
)


@dataclass(frozen=True)
class Argument:
    """One argument."""

    name: str
    kind: str
    required: bool
    keyword_only: bool = False
    default: Any = None
    # String values in the annotation or the documentation.
    words: tuple[str, ...] = ()


def kind_of_schema(text: str) -> str:
    """The kind of an argument from its schema type, e.g. `Optional[List[int]]`."""
    bare = re.sub(r"^Optional\[(.*)\]$", r"\1", text)
    if bare in ("Tensor",):
        return TENSOR
    if bare in ("List[Tensor]", "List[Optional[Tensor]]"):
        return TENSORS
    if bare in ("List[int]", "List[SymInt]"):
        return "ints"
    if bare in ("List[float]",):
        return "floats"
    if bare in ("int", "SymInt"):
        return "int"
    if bare in ("number", "Scalar"):
        return "number"
    if bare in ("float", "bool", "str"):
        return bare
    return "other"


def kind_of_annotation(name: str, annotation: Any, default: Any) -> str:
    """The kind of an argument from a Python annotation, its name or its default."""
    # torch annotates some lists of sizes as None, for its own compiler.
    if annotation is inspect.Parameter.empty or annotation is type(None):
        if isinstance(default, bool):
            return "bool"
        if isinstance(default, (int, float, str)):
            return type(default).__name__
        if isinstance(default, (tuple, list)):
            return "ints"
        return TENSOR if TENSOR_NAMES.match(name) else "int"
    text = annotation if isinstance(annotation, str) else str(annotation)
    if not isinstance(annotation, str) and inspect.isclass(annotation):
        text = annotation.__name__
    if "Tensor" in text:
        many = re.match(r"(typing\.)?(list|List|Sequence|tuple|Tuple|collections)", text)
        return TENSORS if many else TENSOR
    for word, kind in (
        ("Literal", "str"),
        ("bool", "bool"),
        ("dtype", "other"),
        ("device", "other"),
    ):
        if word in text:
            return kind
    if re.search(r"list|tuple|Sequence|BroadcastingList|_size", text):
        return "ints"
    for kind in ("int", "float", "str"):
        if kind in text:
            return kind
    return "other"


def documented_words(target: Any, name: str) -> tuple[str, ...]:
    """Words in quotes or code in the paragraph about `name` in the documentation."""
    doc = inspect.getdoc(target) or ""
    found: list[str] = []
    for paragraph in re.split(r"\n(?=\s*[\w, ]+\s*\()", doc):
        if re.match(rf"\s*[\w, ]*\b{re.escape(name)}\b", paragraph):
            found += re.findall(r"[`'\"]{1,3}'?([a-z_\-]+)'?[`'\"]{1,3}", paragraph)
    # Strings with a syntax of their own occur in calls: `einsum('ij,jk->ik', ...)`.
    called = re.escape(getattr(target, "__name__", ""))
    found += [t for t in re.findall(rf"\b{called}\(['\"]([^'\"]+)['\"]", doc) if "->" in t]
    unique = dict.fromkeys(word for word in found if word not in ("none", name, "str", "True"))
    return tuple(unique)[:8]


def from_schemas(name: str, target: Any) -> list[list[Argument]]:
    """One list of arguments for each overload of `aten::name` that returns a new tensor."""
    overloads = []
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        arguments = schema.arguments
        overload = schema.overload_name
        # Named dimensions are a withdrawn prototype; their overloads take strings as dimensions.
        if "imname" in overload or overload.startswith("names") or overload == "dtype":
            continue
        if any(a.is_out or (a.alias_info and a.alias_info.is_write) for a in arguments):
            continue
        overloads.append(
            [
                Argument(
                    a.name,
                    kind_of_schema(str(a.type)),
                    not a.has_default_value() and not str(a.type).startswith("Optional"),
                    a.kwarg_only,
                    a.default_value,
                    documented_words(target, a.name) if str(a.type) == "str" else (),
                )
                for a in arguments
            ]
        )
    return overloads


def from_python(target: Callable[..., Any], skip_first: bool = False) -> list[Argument] | None:
    """Arguments of a Python function; None if their kinds cannot be determined."""
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return None
    try:
        hints = typing.get_type_hints(target)
    except Exception:
        hints = {}
    found = []
    for parameter in list(signature.parameters.values())[1 if skip_first else 0 :]:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return None
        if parameter.kind is inspect.Parameter.VAR_KEYWORD or parameter.name.startswith("_"):
            continue
        required = parameter.default is inspect.Parameter.empty
        default = None if required else parameter.default
        annotation = hints.get(parameter.name, parameter.annotation)
        kind = kind_of_annotation(parameter.name, annotation, default)
        words: tuple[str, ...] = ()
        if kind == "str":
            words = tuple(re.findall(r"'([\w\-]+)'", str(annotation)))
            words = words or documented_words(target, parameter.name)
        only = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        found.append(Argument(parameter.name, kind, required, only, default, words))
    return found


def text_of(arguments: list[Argument]) -> str:
    """The signature for people: `(input: tensor, dim: int, keepdim: bool = False)`."""
    parts = []
    for a in arguments:
        default = "" if a.required else f" = {a.default!r}"
        parts.append(f"{a.name}: {a.kind}{default}")
    return f"({', '.join(parts)})"
