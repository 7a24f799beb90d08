"""Writes a traced graph as the body of ``forward``."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Node

from .failure import Untraceable
from .names import Names, identifier
from .trace import Source, Traced

INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.matmul: "@",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
IN_PLACE = {
    operator.iadd: "+=",
    operator.isub: "-=",
    operator.imul: "*=",
    operator.itruediv: "/=",
}
PREFIX = {operator.neg: "-", operator.invert: "~", operator.pos: "+"}
VIEWS = {"view", "reshape", "transpose", "permute", "expand", "contiguous", "unsqueeze", "squeeze"}
VIEWS |= {"flatten", "size", "chunk", "split", "to", "float", "type", "t", "getitem", "getattr"}
VIEWS |= {"unflatten", "view_as", "expand_as", "narrow", "select", "movedim"}
"""Calls that compute nothing, by name."""
PLACES = [(F, "F"), (torch, "torch"), (torch.special, "torch.special")]
PLACES += [(torch.linalg, "torch.linalg"), (torch.fft, "torch.fft"), (math, "math")]
MOST_NODES = 2000


@dataclass
class Body:
    """The text of ``forward``, and the names in it."""

    lines: list[str] = field(default_factory=list)
    inputs: list[tuple[str, int]] = field(default_factory=list)
    """Parameters of ``forward``: name, and number of the tensor in the call."""
    weights: list[tuple[str, Source]] = field(default_factory=list)
    operators: int = 0
    """Calls that compute."""


def function_name(target: Any) -> str:
    """The text of a function of torch."""
    if isinstance(target, torch._ops.OpOverload) and target.namespace == "aten":
        return f"torch.ops.{target!s}"
    name = getattr(target, "__name__", "")
    if name.isidentifier():
        for module, prefix in PLACES:
            if getattr(module, name, None) is target:
                return f"{prefix}.{name}"
    raise Untraceable(f"it calls {name or str(target)}, which a task cannot name")


class Emitter:
    """Writes the nodes one after the other."""

    def __init__(self, traced: Traced, input_names: list[str]) -> None:
        self.body = Body()
        self.names = Names()
        self.text: dict[Node, str] = {}
        self.device: str | None = None
        nodes = [node for node in traced.graph.graph.nodes if node.op == "placeholder"]
        self.placeholders(list(zip(nodes, traced.sources, strict=True)), input_names)

    def placeholders(self, pairs: list[tuple[Node, Source]], input_names: list[str]) -> None:
        """Names inputs in the order of the call, then weights, then sizes."""
        used = {source.index for _, source in pairs if source.kind in ("input", "size")}
        by_index = {}
        for index in sorted(used):
            by_index[index] = self.names.new(input_names[index], "input")
            self.body.inputs.append((by_index[index], index))
        for node, source in pairs:
            if source.kind == "input":
                self.text[node] = by_index[source.index]
            elif source.kind == "weight":
                name = self.names.new(source.path, "layer")
                self.text[node] = f"self.{name}"
                self.body.weights.append((name, source))
        sizes: dict[str, str] = {}
        for node, source in pairs:
            if source.kind == "size":
                size = f"{by_index[source.index]}.shape[{source.dim}]"
                if size not in sizes:
                    sizes[size] = self.names.new(f"{by_index[source.index]}_size{source.dim}")
                    self.body.lines.append(f"{sizes[size]} = {size}")
                self.text[node] = sizes[size]
        first = next(iter(by_index.values()), None)
        first = first or next((f"self.{name}" for name, _ in self.body.weights), None)
        self.device = f"{first}.device" if first else None

    def value(self, value: Any) -> str:
        """The text of an argument."""
        if isinstance(value, Node):
            return self.text[value]
        if isinstance(value, slice):
            parts = [value.start, value.stop, value.step]
            return f"slice({', '.join(self.value(part) for part in parts)})"
        if isinstance(value, (tuple, torch.Size)):
            items = [self.value(item) for item in value]
            return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
        if isinstance(value, list):
            return f"[{', '.join(self.value(item) for item in value)}]"
        if isinstance(value, dict):
            pairs = [f"{self.value(key)}: {self.value(item)}" for key, item in value.items()]
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, torch.device):
            return self.device_text()
        if type(value) is float and not math.isfinite(value):
            return f'float("{value}")'
        if value is Ellipsis:
            return "..."
        plain = (bool, int, float, str, type(None), torch.dtype, torch.memory_format, torch.layout)
        if type(value) in plain:
            return repr(value)
        raise Untraceable(f"it passes a {type(value).__name__}, which a task cannot write")

    def device_text(self) -> str:
        """The device at hand."""
        if self.device is None:
            raise Untraceable("it names a device, and has no tensor to take it from")
        return self.device

    def index(self, value: Any) -> str:
        """The text between the brackets of an index."""
        parts = value if isinstance(value, tuple) else (value,)
        return ", ".join(self.subscript(part) for part in parts) or "()"

    def subscript(self, value: Any) -> str:
        """One part of an index."""
        if not isinstance(value, slice):
            return self.value(value)
        ends = [value.start, value.stop]
        text = ":".join("" if end is None else self.value(end) for end in ends)
        return text if value.step is None else f"{text}:{self.value(value.step)}"

    def arguments(self, args: Any, kwargs: dict[str, Any]) -> str:
        """The text between the parentheses of a call."""
        named = []
        for name, value in kwargs.items():
            given = self.device_text() if name == "device" and value is not None else None
            named.append(f"{name}={given or self.value(value)}")
        return ", ".join([*(self.value(value) for value in args), *named])

    def operand(self, value: Any) -> str:
        """An operand of an operator; negative numbers in parentheses."""
        text = self.value(value)
        return f"({text})" if text.startswith("-") else text

    def node(self, node: Node) -> None:
        """Writes one node."""
        target = node.target
        if node.op == "call_method":
            expression = self.method(node)
        elif node.op != "call_function":
            raise Untraceable(f"its graph has a node of kind {node.op}")
        elif skipped(node):
            if node.args and isinstance(node.args[0], Node) and node.args[0] in self.text:
                self.text[node] = self.text[node.args[0]]
            return
        elif target in IN_PLACE and is_tensor(node.args[0]):
            self.body.lines.append(
                f"{self.value(node.args[0])} {IN_PLACE[target]} {self.value(node.args[1])}"
            )
            self.text[node] = self.value(node.args[0])
            self.body.operators += 1
            return
        elif target is operator.setitem:
            tensor, index, value = node.args
            line = f"{self.value(tensor)}[{self.index(index)}] = {self.value(value)}"
            self.body.lines.append(line)
            self.body.operators += 1
            return
        else:
            expression = self.function(node)
        self.text[node] = name = self.names.new(node.name)
        self.body.lines.append(f"{name} = {expression}")
        called = target if isinstance(target, str) else getattr(target, "__name__", "")
        self.body.operators += called not in VIEWS

    def method(self, node: Node) -> str:
        """A call of a method of a tensor."""
        name = node.target
        if not isinstance(name, str) or not hasattr(torch.Tensor, name):
            raise Untraceable(f"it calls the method {name}, which tensors do not have")
        tensor, *rest = node.args
        if name == "to" and rest and isinstance(rest[0], str):
            rest[0] = torch.device("cpu")  # any: the text is that of the device at hand
        return f"{self.operand(tensor)}.{name}({self.arguments(rest, node.kwargs)})"

    def function(self, node: Node) -> str:
        """A call of a function."""
        target, args = node.target, node.args
        sign = INFIX.get(target) or IN_PLACE.get(target, "").rstrip("=")
        if sign and len(args) == 2 and not node.kwargs:
            return f"{self.operand(args[0])} {sign} {self.operand(args[1])}"
        if target in PREFIX and len(args) == 1:
            return f"{PREFIX[target]}{self.operand(args[0])}"
        if target is operator.getitem:
            return f"{self.value(args[0])}[{self.index(args[1])}]"
        if target is getattr and len(args) == 2 and identifier(str(args[1]), "a") == args[1]:
            return f"{self.value(args[0])}.{args[1]}"
        return f"{function_name(target)}({self.arguments(args, node.kwargs)})"


def skipped(node: Node) -> bool:
    """Whether a call changes nothing: the model is in evaluation mode, without gradients."""
    name = getattr(node.target, "__name__", "")
    if name == "_enter_autocast":
        if node.args[2] is not False:
            raise Untraceable("it uses autocast")
        return True
    if name in ("_exit_autocast", "_set_grad_enabled"):
        return True
    if name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"):
        training = node.args[2] if len(node.args) > 2 else node.kwargs.get("training", True)
        return training is False
    return False


def is_tensor(value: Any) -> bool:
    """Whether an argument is a tensor: sizes are numbers, which nothing changes in place."""
    return isinstance(value, Node) and isinstance(value.meta.get("example_value"), torch.Tensor)


def emit(traced: Traced, input_names: list[str]) -> Body:
    """The text of ``forward``."""
    graph = traced.graph.graph
    if len(graph.nodes) > MOST_NODES:
        raise Untraceable(f"its graph has {len(graph.nodes)} nodes")
    emitter = Emitter(traced, input_names)
    for node in graph.nodes:
        if node.op == "output":
            results = [emitter.value(value) for value in node.args[0]]
            whole = results[0] if len(results) == 1 else f"{', '.join(results)}"
            emitter.body.lines.append(f"return {whole}")
        elif node.op != "placeholder" and (node.users or node.is_impure() or mutates(node)):
            emitter.node(node)
    if not emitter.body.inputs:
        raise Untraceable("it has no tensors as inputs")
    return emitter.body


def mutates(node: Node) -> bool:
    """Whether a call may write to a tensor."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.startswith("_")
    return in_place or node.target in IN_PLACE or node.target is operator.setitem
