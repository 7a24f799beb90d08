"""Traces one module to a graph of torch calls, with TorchDynamo."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .calls import Call, Nest
from .failure import Untraceable, told

MOST_FRAMES = 400
"""Longest text of where a graph breaks."""


@dataclass
class Source:
    """What a placeholder of the graph stands for."""

    kind: str
    """``input``, ``weight`` (any tensor that the module has), or ``size``."""
    tensor: torch.Tensor | None = None
    index: int = 0
    """Of the input."""
    path: str = ""
    """Of the weight, below the module."""
    dim: int = 0
    """Of the input whose size it is."""


@dataclass
class Traced:
    """The graph, and what goes in and comes out."""

    graph: GraphModule
    sources: list[Source]
    outputs: Any
    """The nesting of the module's result."""


def weights(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that the module or a module in it has as an attribute."""
    yield from module.named_parameters()
    yield from module.named_buffers()
    for path, inner in module.named_modules():
        for name, value in vars(inner).items():
            if isinstance(value, torch.Tensor):
                yield (f"{path}.{name}" if path else name), value


def versions(tensors: list[torch.Tensor]) -> list[int]:
    """Numbers that change when a tensor is written to."""
    return [tensor._version for tensor in tensors]


def where(error: BaseException) -> str:
    """The message of a graph break and the user's line, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0] if lines else type(error).__name__
    explained = [line for line in lines if line.startswith("Explanation:")]
    if explained:
        reason = f"{reason}: {explained[0].removeprefix('Explanation:').strip()}"
    frames = list(getattr(error, "real_stack", None) or [])
    if frames:
        reason = f"{reason} ({location(frames[-1])})"
    return reason[:MOST_FRAMES]


def location(frame: Any) -> str:
    """File, line and function of a frame."""
    return f"{str(frame.filename).rsplit('/', 1)[-1]}:{frame.lineno} in {frame.name}"


def trace(module: torch.nn.Module, call: Call, dynamic: list[tuple[int, int]]) -> Traced:
    """Traces one call. Sizes in ``dynamic``, as input and dimension, stay symbols."""
    calls: list[tuple[GraphModule, tuple[Any, ...]]] = []

    def backend(graph: GraphModule, _examples: list[Any]) -> Any:
        def compiled(*given: Any) -> Any:
            calls.append((graph, given))
            return graph(*given)

        return compiled

    nest = Nest()

    def flat(*tensors: torch.Tensor) -> Any:
        args, kwargs = call.arguments(list(tensors))
        return module(*args, **kwargs)

    tensors = [tensor.clone() if dynamic else tensor for tensor in call.tensors]
    own = [tensor for _, tensor in weights(module)]
    before = versions(tensors + own)
    torch._dynamo.reset()
    for index, dim in dynamic:
        torch._dynamo.mark_dynamic(tensors[index], dim)
    try:
        with torch.no_grad():
            result = torch.compile(flat, backend=backend, fullgraph=True)(*tensors)
    except Exception as error:
        raise Untraceable(where(error)) from error
    finally:
        torch._dynamo.reset()
    if versions(tensors + own) != before:
        raise Untraceable("it writes to its inputs or its state")
    outputs = nest.take(result, "its result")
    if len(calls) != 1:
        raise Untraceable("it computes nothing" if not calls else "it is several graphs")
    graph, given = calls[0]
    returned = [t for t in next(n for n in graph.graph.nodes if n.op == "output").args[0]]
    if len(returned) != len(nest.tensors):
        raise Untraceable("it returns one of its inputs or weights")
    return Traced(graph, named_sources(module, graph, given, tensors), outputs)


def named_sources(
    module: torch.nn.Module, graph: GraphModule, given: tuple[Any, ...], tensors: list[torch.Tensor]
) -> list[Source]:
    """What each placeholder stands for, found by the identity of what it is given."""
    inputs = {id(tensor): index for index, tensor in enumerate(tensors)}
    paths: dict[int, str] = {}
    for path, tensor in weights(module):
        paths.setdefault(id(tensor), path)
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    sources = []
    for node, value in zip(nodes, given, strict=True):
        if isinstance(value, torch.Tensor) and id(value) in inputs:
            sources.append(Source("input", value, index=inputs[id(value)]))
        elif isinstance(value, torch.Tensor) and id(value) in paths:
            sources.append(Source("weight", value, path=paths[id(value)]))
        elif isinstance(value, int):
            sources.append(size_source(node, nodes, sources, given, inputs))
        else:
            raise Untraceable(f"it uses a {type(value).__name__} from outside of it")
    return sources


def size_source(
    node: Node,
    nodes: list[Node],
    _known: list[Source],
    given: tuple[Any, ...],
    inputs: dict[int, int],
) -> Source:
    """The input and dimension whose size a symbol is."""
    symbol = str(node.meta.get("example_value"))
    for other, value in zip(nodes, given, strict=True):
        example = other.meta.get("example_value")
        if id(value) in inputs and isinstance(example, torch.Tensor):
            for dim, size in enumerate(example.shape):
                if str(size) == symbol:
                    return Source("size", index=inputs[id(value)], dim=dim)
    raise Untraceable("it uses a number that is no size of an input")


@dataclass
class Break:
    """A place where the model leaves its graph."""

    reason: str
    where: str


def graph_breaks(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The graph breaks of the whole model, or the reason why they are not known."""
    torch._dynamo.reset()
    level = logging.getLogger("torch._dynamo").level
    try:
        with torch.no_grad():
            explained = torch._dynamo.explain(model)(*args, **kwargs)
    except Exception as error:
        return [Break(told(error), "the whole model")]
    finally:
        logging.getLogger("torch._dynamo").setLevel(level)
        torch._dynamo.reset()
    breaks: list[Break] = []
    for found in explained.break_reasons:
        lines = [line.strip() for line in str(found.reason).splitlines() if line.strip()]
        place = location(found.user_stack[-1]) if found.user_stack else "an unknown place"
        one = Break((lines[0] if lines else "no reason given")[:MOST_FRAMES], place)
        if one not in breaks:
            breaks.append(one)
    return breaks
