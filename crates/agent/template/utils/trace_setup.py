"""What torch is taught before a reference is traced, so that nothing large is computed."""

from __future__ import annotations

from typing import Any

from utils.graph_json import CONSTANT_ELEMENTS, Refusal


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
