"""What is printed of a traced reference: nodes, constants, inputs and state as JSON values."""

from __future__ import annotations

import inspect
import math
from typing import Any

CONSTANT_ELEMENTS = 4096


class Refusal(Exception):
    """Something the reference does that cannot be traced, with a cure."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def tensor_meta(t: Any) -> dict[str, Any]:
    return {
        "shape": [int(s) for s in t.shape],
        "stride": [int(s) for s in t.stride()],
        "dtype": dtype_name(t.dtype),
    }


def encode_number(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"f": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    return value


def encode(value: Any) -> Any:
    """One argument of a call: nodes by name, numbers as they are, the rest tagged."""
    import torch

    if isinstance(value, torch.fx.Node):
        return {"n": value.name}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return encode_number(value)
    if isinstance(value, torch.SymInt):
        return int(value)
    return {"other": str(value)}


def constant(name: str, t: Any) -> dict[str, Any]:
    """A tensor the model made outside its parameters and buffers, by value."""
    import torch

    flat = t.detach().cpu().contiguous().reshape(-1)
    out = {"name": name, **tensor_meta(t.detach().contiguous())}
    if flat.numel() and bool(torch.all(flat == flat[0])):
        out["values"] = [encode_number(flat[0].item())]
    elif flat.numel() <= CONSTANT_ELEMENTS:
        out["values"] = [encode_number(v) for v in flat.tolist()]
    else:
        raise Refusal(
            f"constant {name} has {flat.numel()} elements that are not all equal",
            "register it as a buffer, or compute it in forward",
        )
    return out


def graph_body(graph: Any) -> dict[str, Any]:
    import torch

    nodes: list[dict[str, Any]] = []
    outputs: Any = None
    for node in graph.nodes:
        if node.op == "output":
            outputs = encode(node.args[0])
        elif node.op == "call_function":
            value = node.meta.get("val", node.meta.get("tensor_meta"))
            row: dict[str, Any] = {"name": node.name, "op": str(node.target)}
            if node.target.__name__ == "getitem":
                row["op"] = "getitem"
            row["args"] = encode(list(node.args))
            keywords = {k: encode(v) for k, v in node.kwargs.items()}
            row["kwargs"] = {k: v for k, v in keywords.items() if v is not None}
            if isinstance(value, torch.Tensor):
                row["out"] = [tensor_meta(value)]
            elif isinstance(value, (list, tuple)):
                row["out"] = [
                    tensor_meta(v) if isinstance(v, torch.Tensor) else None for v in value
                ]
            else:
                row["out"] = []
            nodes.append(row)
    return {"nodes": nodes, "outputs": outputs}


def state_of(model: Any) -> list[dict[str, Any]]:
    persistent = set(model.state_dict().keys())
    out = []
    for kind, tensors in (
        ("parameter", model.named_parameters(remove_duplicate=False)),
        ("buffer", model.named_buffers(remove_duplicate=False)),
    ):
        for name, t in tensors:
            row = {"name": name, "kind": kind, **tensor_meta(t), "persistent": name in persistent}
            if name not in persistent:
                row["values"] = constant(name, t)["values"]
            out.append(row)
    return out


def input_meta(model: Any, inputs: list[Any]) -> list[dict[str, Any]]:
    import torch

    try:
        names = [p.name for p in inspect.signature(model.forward).parameters.values()]
    except (TypeError, ValueError):
        names = []
    out = []
    for i, value in enumerate(inputs):
        name = names[i] if i < len(names) and "*" not in names[i] else f"input_{i}"
        if isinstance(value, torch.Tensor):
            meta = {**tensor_meta(value), "offset": int(value.storage_offset())}
            out.append({"name": name, "tensor": meta})
        elif value is None or isinstance(value, (bool, int, float, str)):
            out.append({"name": name, "scalar": encode_number(value)})
        else:
            raise Refusal(
                f"input {name} is a {type(value).__name__}", "inputs must be tensors or numbers"
            )
    return out


def structure(value: Any) -> str:
    """How forward returns its outputs: 'tensor', 'tuple' or 'list'."""
    import torch

    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, (tuple, list)) and all(isinstance(v, torch.Tensor) for v in value):
        return "list" if isinstance(value, list) else "tuple"
    raise Refusal(
        f"forward returns a {type(value).__name__}", "it must return a tensor or a tuple of tensors"
    )
