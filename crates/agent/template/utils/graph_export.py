"""From a model to a graph: through `torch.export`, or through `make_fx` on real tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from utils.graph_json import Refusal, constant, graph_body


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
