"""Tasks whose call is a step: forward, then the gradients of inputs and parameters.

The source of such a reference makes its ``Model`` compute them by autograd, and its ``get_inputs``
return ``[inputs, grad_outputs]``. A candidate has a method for each half.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from .channel import Refusal
from .tensors import flatten, unflatten

STEP = "backward"
"""The part of a candidate's mode that names such a task."""


def _copies(
    outputs: Any,
    before: int,
    clone: Callable[..., torch.Tensor] = torch._C.TensorBase.clone,
    taken: Callable[..., Any] = flatten,
    made: Callable[..., Any] = unflatten,
    plain: Callable[..., Any] = torch._C.DisableTorchFunction,
    modes: Callable[[], int] = torch._C._len_torch_dispatch_stack,
    functions: Callable[[], int] = torch._C._len_torch_function_stack,
) -> Any:
    """The outputs of forward as they are when it returns; ``before``: the dispatch modes at the
    start of the call, of which a recorder has one. All that it calls is bound before a candidate
    could replace it in torch or here."""
    if modes() > before or functions():
        text = "a mode of torch is active when forward returns: leave it in forward"
        raise Refusal("exception", text)
    tensors: list[torch.Tensor] = []
    tree = taken(outputs, tensors)
    for tensor in tensors:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            text = f"an output of forward is a {type(tensor).__name__}: return plain tensors"
            raise Refusal("exception", text)
    with plain():
        return made(tree, [clone(tensor) for tensor in tensors])


def as_called(
    model: torch.nn.Module,
    mode: str,
    copies: Callable[[Any, int], Any] = _copies,
    modes: Callable[[], int] = torch._C._len_torch_dispatch_stack,
) -> Callable[..., Any]:
    """What a call of the candidate calls: the model, or both of its halves."""
    if STEP not in mode.split(":"):
        return model
    if not callable(getattr(model, "backward", None)):
        text = (
            "ModelNew defines no method backward: the task has gradients, so it needs "
            "`backward(self, *grad_outputs)`, which returns those of inputs and parameters"
        )
        raise Refusal("no_backward", text)

    def step(inputs: Any, grad_outputs: Any) -> tuple[Any, Any]:
        before = modes()
        outputs = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
        # Whoever calls a module reads its outputs before it calls backward. The reference's are
        # copied as well.
        outputs = copies(outputs, before)
        gradients = model.backward(*grad_outputs)
        return outputs, (gradients,) if isinstance(gradients, torch.Tensor) else gradients

    return step


def compiled(model: torch.nn.Module, settings: dict[str, Any]) -> Callable[..., Any]:
    """The reference's model under ``torch.compile``. Of a step forward is compiled, as users
    compile it, and autograd runs the backward that torch compiles with it: ``autograd.grad`` itself
    would break the graph."""
    kind = type(model)
    step = getattr(kind, "warpwright_step", None)
    if step is None:
        return torch.compile(model, **settings)
    forward = types.MethodType(kind.warpwright_forward, model)
    return functools.partial(step, model, torch.compile(forward, **settings))
