"""Prints the operator graph of `model.py` as one JSON object.

    python3 -m utils.trace

The reference is built with its own init inputs, put in eval mode, and traced with `torch.export`
on fake tensors, so nothing is computed, and inputs of any size take no memory. Composite operators
(softmax, norms, activations) are decomposed to pointwise operators and reductions. Where export
fails, `make_fx` traces once more.

A graph longer than the shell's output limit is written to `.trace.json`, one node a line, and
the printed object names the file. Errors are one object too: {"error": ..., "hint": ...}.
There is no GPU in this shell: 'cuda' means the host.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import json
import math
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

VERSION = 1
INLINE_CHARACTERS = 12_000
CONSTANT_ELEMENTS = 4096


class Refusal(Exception):
    """Something the reference does that cannot be traced, with a cure."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def map_cuda_to_cpu() -> None:
    """Makes 'cuda' mean the host: constructors, `.to`, `.cuda()`, `torch.device`."""
    import torch

    if torch.cuda.is_available():
        return
    torch.Tensor.cuda = lambda self, *a, **k: self  # type: ignore[method-assign,assignment]
    torch.nn.Module.cuda = lambda self, *a, **k: self  # type: ignore[method-assign,assignment]

    def is_cuda(value: Any) -> bool:
        if isinstance(value, torch.device):
            return value.type == "cuda"
        return isinstance(value, str) and value.split(":")[0] == "cuda"

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            args = tuple("cpu" if is_cuda(a) else a for a in args)
            if is_cuda(kwargs.get("device")):
                kwargs["device"] = "cpu"
            return func(*args, **kwargs)

    Mode().__enter__()


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


def decompositions() -> dict[Any, Any]:
    import torch
    from torch._decomp import core_aten_decompositions, get_decompositions

    aten = torch.ops.aten
    table = dict(core_aten_decompositions())
    extra = [
        aten._softmax, aten._log_softmax, aten.native_layer_norm, aten.native_group_norm,
        aten._native_batch_norm_legit_no_training, aten._native_batch_norm_legit,
        aten.native_batch_norm, aten.gelu, aten.silu, aten.mish, aten.elu, aten.celu,
        aten.selu, aten.leaky_relu, aten.hardswish, aten.hardsigmoid, aten.hardtanh,
        aten.relu6, aten.softplus, aten.softshrink, aten.hardshrink, aten.threshold,
        aten.log_sigmoid_forward, aten.logsumexp, aten.glu, aten.prelu,
        aten._prelu_kernel, aten.std_mean, aten.var_mean, aten.addcmul,
        aten.addcdiv, aten.lerp, aten.nan_to_num, aten.heaviside, aten.logit, aten.xlogy,
        aten.norm, aten.tril, aten.triu, aten.roll,
        aten.rot90, aten.stack,
        aten.native_dropout, aten.masked_fill, aten.mse_loss, aten.smooth_l1_loss,
        aten.huber_loss, aten.nll_loss_forward, aten.binary_cross_entropy,
        aten.linspace, aten.logaddexp, aten.logaddexp2, aten.eye, aten.frac, aten.diag_embed,
        aten.index_select, aten.pixel_shuffle, aten.pixel_unshuffle, aten.channel_shuffle,
        aten.logcumsumexp, aten._unsafe_index, aten._scaled_dot_product_flash_attention_for_cpu,
        aten.squeeze, aten.t, aten.transpose, aten.narrow, aten.dist, aten.count_nonzero,
        aten.upsample_nearest2d, aten.upsample_bilinear2d,
    ]  # fmt: skip
    table.update(get_decompositions(extra))
    kept = {
        aten.logcumsumexp.default, aten.embedding.default, aten.avg_pool2d.default,
        aten.addmm.default, aten.split.Tensor, aten.unbind.int,
        aten.linalg_vector_norm.default, aten.sum.default, aten.mean.default,
        aten.amax.default, aten.amin.default, aten.mean.dim, aten.sum.dim_IntList,
        # Loops over a sequence, which would be unrolled.
        aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input,
    }  # fmt: skip
    for op in list(table):
        if op in kept:
            del table[op]
    return table


def load(path: str) -> tuple[Any, list[Any], dict[str, Any]]:
    spec = importlib.util.spec_from_file_location("reference", path)
    if spec is None or spec.loader is None:
        raise Refusal(f"failed to load {path}", "the file must be a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference"] = module
    spec.loader.exec_module(module)
    for name in ("Model", "get_inputs"):
        if not hasattr(module, name):
            raise Refusal(f"{path} has no {name}", "see the KernelBench task format")
    init = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
    keywords: dict[str, Any] = {}
    if isinstance(init, dict):
        init, keywords = [], init
    elif len(init) == 2 and isinstance(init[0], (list, tuple)) and isinstance(init[1], dict):
        init, keywords = init
    return module, list(init), dict(keywords)


def inputs_of(module: Any, fake: Any) -> list[Any]:
    """The reference's inputs, as fake tensors where it makes them without looking at values."""
    try:
        with fake:
            return list(module.get_inputs())
    except Exception:
        return list(module.get_inputs())


def shapes_of_recurrent_layers() -> None:
    """Gives recurrent layers a rule for the shapes of their results.

    torch's own runs all steps one by one, which takes minutes, and one of its results has a dim
    too many.
    """
    import torch
    from torch._decomp import decomposition_table

    aten, key = torch.ops.aten, torch._C.DispatchKey

    def rule(cells: int) -> Any:
        def shapes(x: Any, states: Any, *rest: Any) -> Any:
            _, has_biases, layers, _, _, bidirectional, batch_first = rest
            first = states if cells == 1 else states[0]
            directions = 2 if bidirectional else 1
            if not isinstance(has_biases, bool) or x.dim() != 3:
                raise Refusal("a recurrent layer over packed sequences", "use a padded batch")
            batch = x.shape[0] if batch_first else x.shape[1]
            out = x.new_empty(*x.shape[:2], directions * first.shape[-1])
            # A projection makes the hidden state smaller than the cell's.
            last = [x.new_empty(layers * directions, batch, first.shape[-1])]
            last += [torch.empty_like(s) for s in states[1:cells]] if cells > 1 else []
            return (out, *last)

        return shapes

    for op, cells in (
        (aten.lstm.input, 2),
        (aten.gru.input, 1),
        (aten.rnn_tanh.input, 1),
        (aten.rnn_relu.input, 1),
    ):
        shapes = rule(cells)
        for dispatch in (key.CompositeImplicitAutograd, key.Autograd):
            op.py_kernels[dispatch] = shapes
        op._dispatch_cache.clear()
        decomposition_table[op] = shapes


def attributes(model: Any) -> list[tuple[Any, dict[str, Any]]]:
    """What each module holds, to undo what `forward` assigns while it is only traced."""
    return [(module, dict(module.__dict__)) for module in model.modules()]


def restore(saved: list[tuple[Any, dict[str, Any]]]) -> None:
    for module, held in saved:
        module.__dict__.clear()
        module.__dict__.update(held)


def unfilled() -> Any:
    """A mode in which large tensors keep whatever they hold where random numbers are asked for.

    The values of a reference's weights are nothing to a graph, and memory that nobody touches
    is not there.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    fills = {aten.uniform_.default, aten.normal_.default, aten.bernoulli_.float}

    class Unfilled(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if func in fills and args[0].numel() > CONSTANT_ELEMENTS:
                return args[0]
            return func(*args, **(kwargs or {}))

    return Unfilled()


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


@contextlib.contextmanager
def as_buffers(model: Any) -> Iterator[set[str]]:
    """Registers tensors that are plain attributes as buffers meanwhile; gives their names.

    A reference may keep its state so, and export knows of changes to buffers only.
    """
    import torch

    moved = []
    for path, module in model.named_modules():
        for name, value in list(module.__dict__.items()):
            if isinstance(value, torch.Tensor):
                del module.__dict__[name]
                module.register_buffer(name, value, persistent=False)
                moved.append((module, name, value, f"{path}.{name}" if path else name))
    try:
        yield {full for *_, full in moved}
    finally:
        for module, name, value, _ in moved:
            del module._buffers[name]
            module._non_persistent_buffers_set.discard(name)
            module.__dict__[name] = value


def overwritten(graph: Any, name: str) -> bool:
    """Whether a graph input is only ever written over, so that its values are not read."""
    import torch

    copy = torch.ops.aten.copy.default
    (node,) = (n for n in graph.nodes if n.op == "placeholder" and n.name == name)
    return all(u.target is copy and u.args.index(node) == 0 for u in node.users)


def export_graph(model: Any, inputs: list[Any]) -> dict[str, Any]:
    """Nodes, leaves and outputs through torch.export."""
    import torch
    from torch.export.graph_signature import InputKind, OutputKind

    with as_buffers(model) as attributes:
        program = torch.export.export(model, tuple(inputs), strict=False)
    program = program.run_decompositions(decompositions())
    leaves: list[dict[str, Any]] = []
    constants: list[dict[str, Any]] = []
    unread = set()
    slot = 0
    for spec in program.graph_signature.input_specs:
        name = getattr(spec.arg, "name", "")
        if spec.kind == InputKind.USER_INPUT:
            leaves.append({"name": name, "input": slot})
            slot += 1
        elif spec.kind == InputKind.BUFFER and spec.target in attributes:
            value = program.state_dict.get(spec.target, program.constants.get(spec.target))
            if overwritten(program.graph, name):
                unread.add(spec.target)
                value = torch.zeros_like(value)
            constants.append(constant(name, value))
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            leaves.append({"name": name, "state": spec.target})
        elif spec.kind == InputKind.CONSTANT_TENSOR:
            constants.append(constant(name, program.constants[spec.target]))
        else:
            raise Refusal(f"unsupported graph input {spec.kind}", "use plain tensors")
    returned = []
    for out in program.graph_signature.output_specs:
        kept = out.kind == OutputKind.BUFFER_MUTATION and out.target in unread
        if out.kind != OutputKind.USER_OUTPUT and not kept:
            raise Refusal(
                f"forward changes {out.target or out.arg.name}",
                "references that mutate buffers or inputs cannot be traced",
            )
        returned.append(not kept)
    body = graph_body(program.graph)
    body["outputs"] = [
        o for o, is_result in zip(body["outputs"], returned, strict=True) if is_result
    ]
    return {"leaves": leaves, "constants": constants, **body}


def make_fx_graph(model: Any, inputs: list[Any]) -> dict[str, Any]:
    """The same through make_fx, on real tensors."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    state = dict(model.named_parameters(remove_duplicate=False))
    state.update(model.named_buffers(remove_duplicate=False))
    names = list(state)

    def flat(values: list[Any], *args: Any) -> Any:
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), args)

    module = make_fx(flat, decomposition_table=decompositions())(list(state.values()), *inputs)
    leaves, constants = [], []
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    tensors = len(names)
    for i, node in enumerate(placeholders):
        if i < tensors:
            leaves.append({"name": node.name, "state": names[i]})
        else:
            leaves.append({"name": node.name, "input": i - tensors})
    for node in module.graph.nodes:
        if node.op == "get_attr":
            constants.append(constant(node.name, getattr(module, node.target)))
    return {"leaves": leaves, "constants": constants, **graph_body(module.graph)}


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


def trace(path: str) -> dict[str, Any]:
    import torch
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import FakeTensorMode

    map_cuda_to_cpu()
    shapes_of_recurrent_layers()
    torch.manual_seed(0)
    module, init, keywords = load(path)
    with unfilled():
        model = module.Model(*init, **keywords).eval()
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    inputs = inputs_of(module, fake)
    held = attributes(model)
    signature = str(inspect.signature(module.Model.__init__))
    with torch.no_grad():
        with fake, enable_python_dispatcher():
            shaped = [fake.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in inputs]
            try:
                shape = structure(model(*shaped))
            except Refusal:
                raise
            except Exception:  # fake tensors do not know every operator; real ones do
                shape = ""
        restore(held)
        if not shape:
            # Values are looked at: from here on with real ones.
            inputs = list(module.get_inputs())
            shape = structure(model(*inputs))
            restore(held)
        try:
            graph = export_graph(model, inputs)
            how = "torch.export"
        except Refusal:
            raise
        except Exception as first:
            restore(held)
            try:
                inputs = list(module.get_inputs())
                graph = make_fx_graph(model, inputs)
                how = "make_fx"
            except Refusal:
                raise
            except Exception:
                raise first from None
        restore(held)
    return {
        "version": VERSION,
        "tracer": how,
        "init_signature": signature,
        "inputs": input_meta(model, inputs),
        "state": state_of(model),
        "structure": shape,
        **graph,
    }


def by_lines(graph: dict[str, Any]) -> str:
    """JSON with one list entry a line, so that it can be read in pages."""
    parts = []
    for key, value in graph.items():
        if isinstance(value, list) and key in ("nodes", "state", "leaves", "constants"):
            rows = ",\n".join(json.dumps(v, separators=(",", ":")) for v in value)
            parts.append(f'"{key}":[\n{rows}\n]')
        else:
            parts.append(f'"{key}":{json.dumps(value, separators=(",", ":"))}')
    text = "{" + ",\n".join(parts) + "}"
    # The Read tool cuts long lines; JSON may be broken after any comma outside a string, and in
    # our strings a comma is followed by a space.
    return re.sub(r'(.{1000,1400}?,)(?=[\[{"\-0-9])', r"\1\n", text)


def main() -> int:
    warnings.filterwarnings("ignore")
    path = sys.argv[1] if len(sys.argv) > 1 else "model.py"
    try:
        if not os.path.exists(path):
            raise Refusal(f"{path} does not exist", "run this in the workspace")
        text = by_lines(trace(path))
    except Refusal as e:
        print(json.dumps({"error": str(e), "hint": e.hint}))
        return 1
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}:{last.lineno}"
        first = (str(e).strip().splitlines() or [""])[0][:600]
        hint = f"raised at {where}; the reference must run on the host with its own inputs"
        print(json.dumps({"error": f"{type(e).__name__}: {first}", "hint": hint}))
        return 1
    if len(text) <= INLINE_CHARACTERS:
        print(text)
    else:
        with open(".trace.json", "w", encoding="utf-8") as f:
            f.write(text + "\n")
        lines = text.count("\n") + 1
        print(json.dumps({"file": ".trace.json", "lines": lines, "characters": len(text)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
