"""Writes a task in KernelBench form, with workloads where there are several."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .calls import Call
from .emit import Body
from .values import Values, drawn, like, spread

MOST_VALUES = 64
"""Most elements of a tensor of integers that are written down."""


@dataclass
class Variant:
    """A call of the region with other shapes."""

    name: str
    call: Call


def typed(dtype: torch.dtype) -> str:
    """The argument that selects a dtype; nothing for torch's default."""
    return "" if dtype is torch.float32 else f", dtype={dtype}"


def weight_line(name: str, tensor: torch.Tensor) -> str:
    """The line of ``__init__`` that makes a parameter or a buffer."""
    shape = tuple(tensor.shape)
    sizes = ", ".join(map(str, shape)) if shape else "()"
    parameter = isinstance(tensor, torch.nn.Parameter)
    if not tensor.is_floating_point() and 0 < tensor.numel() <= MOST_VALUES:
        expression = f"torch.tensor({tensor.tolist()}, dtype={tensor.dtype})"
    else:
        values = spread(like(tensor)) if tensor.is_floating_point() else like(tensor)
        dims = [str(size) for size in shape]
        whole = sizes if values.kind in ("normal", "uniform", "chance") else f"({sizes},)"
        expression = drawn(values, whole if shape else "()", dims, tensor.dtype)
    if parameter:
        plain = "" if tensor.is_floating_point() else ", requires_grad=False"
        return f"self.{name} = nn.Parameter({expression}{plain})"
    return f'self.register_buffer("{name}", {expression})'


def merged(all_values: list[Values]) -> Values:
    """What the values of several variants are like."""
    first = all_values[0]
    alike = [values for values in all_values if values.kind == first.kind]
    if first.kind == "integers":
        return Values(first.kind, min(v.low for v in alike), max(v.high for v in alike))
    return first


@dataclass
class Strides:
    """How a tensor lies in memory."""

    order: list[int]
    """Its dimensions, from the one with the largest stride."""
    expanded: list[int]
    """Dimensions along which all elements are the same."""
    dense: bool
    """Whether it is a permuted or expanded contiguous tensor."""


def strides(tensor: torch.Tensor) -> Strides:
    """How a tensor lies in memory."""
    shape, steps = tensor.shape, tensor.stride()
    expanded = [d for d in range(tensor.dim()) if steps[d] == 0 and shape[d] > 1]
    natural = list(range(tensor.dim()))
    moving = [d for d in natural if d not in expanded and shape[d] > 1]
    order = sorted(moving, key=lambda d: (-steps[d], d))
    step, dense = 1, True
    for dim in reversed(order):
        dense = dense and steps[dim] == step
        step *= shape[dim]
    # Dimensions of size one keep their place.
    placed = iter(order)
    whole = [next(placed) if d in moving else d for d in natural]
    return Strides(whole, expanded, dense)


class Input:
    """One parameter of ``forward``, over all variants."""

    def __init__(self, name: str, tensors: list[torch.Tensor]) -> None:
        self.name = name
        self.tensors = tensors
        self.values = merged([like(tensor) for tensor in tensors])
        self.layouts = [strides(tensor) for tensor in tensors]
        self.fixed = all(
            t.shape == tensors[0].shape and t.stride() == tensors[0].stride() for t in tensors
        )

    def layout(self) -> Strides | None:
        """The layout that all variants share; None if it must be given by strides."""
        largest = max(range(len(self.tensors)), key=lambda at: self.tensors[at].numel())
        layout = self.layouts[largest]
        for tensor, other in zip(self.tensors, self.layouts, strict=True):
            if not other.dense or not set(other.expanded) <= set(layout.expanded):
                return None
            wanted = made_strides(tensor, layout)
            same = all(
                a == b or n == 1
                for a, b, n in zip(wanted, tensor.stride(), tensor.shape, strict=True)
            )
            if not same:
                return None
        return layout

    def parameters(self) -> dict[str, list[list[int]]]:
        """Parameters of ``get_inputs`` with their value in each variant."""
        if self.fixed:
            return {}
        found = {f"{self.name}_shape": [list(t.shape) for t in self.tensors]}
        if self.layout() is None:
            found[f"{self.name}_stride"] = [list(t.stride()) for t in self.tensors]
        return found

    def expression(self) -> str:
        """The text that makes the tensor."""
        tensor, layout = self.tensors[0], self.layout()
        shape = [f"{self.name}_shape[{d}]" for d in range(tensor.dim())]
        if self.fixed:
            shape = [str(size) for size in tensor.shape]
        whole = f"{self.name}_shape" if not self.fixed else tuple_text(shape)
        dtype = tensor.dtype
        if layout is None:
            steps = f"{self.name}_stride" if not self.fixed else str(tuple(tensor.stride()))
            # Every element of memory is drawn, and the tensor is laid over it.
            values = self.values
            if values.kind in ("causal", "count"):
                values = Values("constant", 1.0 if dtype is torch.bool else 0.0)
            extent = f"(extent({whole}, {steps}),)"
            return f"{wrapped(drawn(values, extent, ['1'], dtype))}.as_strided({whole}, {steps})"
        if not layout.expanded and layout.order == sorted(layout.order):
            return drawn(self.values, whole, shape, dtype)
        base = ["1" if d in layout.expanded else shape[d] for d in layout.order]
        dims = ["1" if d in layout.expanded else shape[d] for d in range(tensor.dim())]
        values = self.values
        if values.kind in ("causal", "count") and layout.order != sorted(layout.order):
            values = Values("constant", 1.0 if dtype is torch.bool else 0.0)
        text = wrapped(drawn(values, tuple_text(base), dims, dtype))
        if layout.order != sorted(layout.order):
            back = [layout.order.index(d) for d in range(tensor.dim())]
            text = f"{text}.permute({', '.join(map(str, back))})"
        return f"{text}.expand({whole})" if layout.expanded else text


def made_strides(tensor: torch.Tensor, layout: Strides) -> list[int]:
    """The strides that a tensor of this shape gets from a layout."""
    steps, step = [0] * tensor.dim(), 1
    for dim in reversed(layout.order):
        if dim not in layout.expanded:
            steps[dim] = step
            step *= tensor.shape[dim]
    return steps


def tuple_text(items: list[str]) -> str:
    """A tuple of these texts."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def wrapped(expression: str) -> str:
    """An expression that a method can be called on."""
    simple = " " not in expression.split("(")[0] and expression.endswith(")")
    return expression if simple and not outer_operator(expression) else f"({expression})"


def outer_operator(expression: str) -> bool:
    """Whether an operator stands outside of all parentheses."""
    depth = 0
    for letter in expression:
        depth += (letter in "([") - (letter in ")]")
        if depth == 0 and letter in "*+<":
            return True
    return False


EXTENT = '''\
def extent(shape, stride):
    """Elements of memory that a tensor spans."""
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride))
'''


def source(title: str, body: Body, variants: list[Variant]) -> str:
    """The text of the task."""
    inputs = [
        Input(name, [variant.call.tensors[index] for variant in variants])
        for name, index in body.inputs
    ]
    made = [f"        {item.expression()},\n" for item in inputs]
    parameters: dict[str, list[list[int]]] = {}
    for item in inputs:
        parameters.update(item.parameters())
    text = [f'"""{title}"""\n\nimport math\n\n' if uses_math(body) else f'"""{title}"""\n\n']
    text.append("import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n")
    text.append("class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n")
    for name, weight in body.weights:
        if weight.tensor is not None:
            text.append(f"        {weight_line(name, weight.tensor)}\n")
    names = ", ".join(name for name, _ in body.inputs)
    text.append(f"\n    def forward(self, {names}):\n")
    text.extend(f"        {line}\n" for line in body.lines)
    if any("extent(" in line for line in made):
        text.append(f"\n\n{EXTENT}")
    given = ", ".join(f"{name}={tuple(sets[0])}" for name, sets in parameters.items())
    if len(variants) > 1:
        text.append("\n\ndef get_workloads():\n    return [\n")
        for at, variant in enumerate(variants):
            arguments = {name: sets[at] for name, sets in parameters.items()}
            text.append(f'        {{"name": "{variant.name}", "arguments": {arguments}}},\n')
        text.append("    ]\n")
    text.append(f"\n\ndef get_inputs({given}):\n    return [\n{''.join(made)}    ]\n")
    text.append("\n\ndef get_init_inputs():\n    return []\n")
    return "".join(text)


def uses_math(body: Body) -> bool:
    """Whether ``forward`` needs the module."""
    return any("math." in line for line in body.lines)
