"""Layers for ``kernels.kernelize``: they have no state, and take weights from the module that they
replace."""

from __future__ import annotations

import inspect
from typing import Any

import torch


def fill(package: Any) -> None:
    """Makes a layer per task, named as its module."""
    for task in package.tasks.values():
        globals()[task.spec["class"]] = _layer(package, task)


def _layer(package: Any, task: Any) -> type[torch.nn.Module]:
    from . import _modules

    folder = task.spec["workloads"][0]["folder"]
    model = package.files.reference(f"{folder}/reference.py").Model
    called = model.warpwright_forward if task.step is not None else model.forward
    parameters = list(inspect.signature(called).parameters)[1:]
    operator = task.operator.name

    def forward(self: Any, *args: Any, **named: Any) -> Any:
        _modules.ready(operator)
        names, judged = task.judged
        ordered, complete = _modules._positional(parameters, args, dict(named))
        tensors: list[torch.Tensor] = []
        index, why = 0, "named arguments"
        attribute = _modules.changed(self, judged)
        if attribute is not None:
            why = f"attribute {attribute} of the module"
        elif complete:
            tensors, index, why = task.mismatch(self, names, ordered)
        if why is None:
            return task.result(tensors, index, True)
        _modules._note(operator, why)
        return called(self, *args, **named)

    forward.__signature__ = inspect.signature(called)  # type: ignore[attr-defined]
    body = {"forward": forward, "can_torch_compile": True, "has_backward": not task.spec["changed"]}
    made = type(task.spec["class"], (torch.nn.Module,), body)
    made.__module__ = __name__
    return made
