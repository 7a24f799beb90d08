"""The operators of a package: schema, kernel, fake kernel, autograd."""

from __future__ import annotations

import sys
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from . import _trees
from ._launch import Workload, nearer
from ._package import Files, PackageError

REGISTRY = "_warpwright_packages"


def registered() -> dict[str, tuple[str, str]]:
    """Digest and folder of the packages whose operators this process has, by namespace."""
    module = sys.modules.setdefault(REGISTRY, types.ModuleType(REGISTRY))
    if not hasattr(module, "packages"):
        module.packages = {}
    return module.packages


def claim(files: Files, namespace: str) -> bool:
    """Whether the operators are still to be registered. Another package may not have the name."""
    packages = registered()
    digest, folder = packages.get(namespace, (files.digest, ""))
    if digest != files.digest:
        raise PackageError(
            f"failed to register the operators {namespace}::* of {files.folder}: the package in "
            f"{folder} has registered others under this name. Import one of the two, or export "
            "one under another name: `warpwright export RUN --name NAME`"
        )
    if namespace in packages:
        return False
    packages[namespace] = (files.digest, str(files.folder))
    return True


class Operator:
    """The operator of a task: ``(inputs..., weights..., bool recompute) -> results``."""

    def __init__(self, files: Files, namespace: str, task: dict[str, Any], fresh: bool) -> None:
        self.files = files
        self.task = task
        self.name = f"{namespace}::{task['name']}"
        self.workloads = [Workload(files, task, spec) for spec in task["workloads"]]
        self.inputs = len(task["workloads"][0]["inputs"])
        self.weights = len(task["weights"])
        self.reference: torch.nn.Module | None = None
        if fresh:
            self._register()
        self.call = getattr(getattr(torch.ops, namespace), task["name"])

    def schema(self) -> str:
        """The operator's schema."""
        names = [f"input_{index}" for index in range(self.inputs)]
        names += [f"weight_{index}" for index in range(self.weights)]
        changed = [f"input_{position}" for position in self.task["changed"]]
        marks = {name: f"(a{index}!)" for index, name in enumerate(changed)}
        given = [f"Tensor{marks.get(name, '')} {name}" for name in names]
        made = len(self.workloads[0].made)
        results = "Tensor" if made == 1 else f"({', '.join(['Tensor'] * made)})"
        return f"({', '.join([*given, 'bool recompute=False'])}) -> {results}"

    def _register(self) -> None:
        changed = [f"input_{position}" for position in self.task["changed"]]
        operator = torch.library.custom_op(
            self.name,
            self._run,
            mutates_args=changed,
            device_types=self.task["device"],
            schema=self.schema(),
        )
        operator.register_fake(self._fake)
        if not changed:
            self._register_backward()
            operator.register_autograd(self._backward, setup_context=self._save)

    def find(self, inputs: list[torch.Tensor], count: int) -> tuple[Workload | None, str | None]:
        """The judged workload of these inputs, by the first of them, else what does not fit."""
        why = None
        for workload in self.workloads:
            this = workload.misfit(inputs, count)
            if this is None:
                return workload, None
            why = this if why is None else nearer(why, this)
        return None, why

    def _found(self, tensors: tuple[Any, ...]) -> Workload:
        workload, why = self.find(list(tensors[: self.inputs]), self.inputs)
        if workload is None:
            raise RuntimeError(
                f"failed to call {self.name}: the {why} of an input is not what was judged; call "
                "the package's module, which falls back to the reference"
            )
        return workload

    def _run(self, *tensors: Any) -> Any:
        return _packed(self.run(*tensors))

    def run(self, *tensors: Any) -> list[torch.Tensor]:
        """Launches the judged plan, below autograd."""
        given = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
        workload = self._found(tensors)
        return workload.run(given[: self.inputs], given[self.inputs :])

    def _fake(self, *tensors: Any) -> Any:
        return _packed(self._found(tensors).results(tensors[0]))

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        given = [value for value in inputs if isinstance(value, torch.Tensor)]
        ctx.recompute = len(inputs) > len(given) and bool(inputs[-1])
        ctx.flag = len(inputs) > len(given)
        ctx.save_for_backward(*given)
        made = [output] if isinstance(output, torch.Tensor) else list(output)
        whole = [result for result in made if not result.is_floating_point()]
        if whole:
            ctx.mark_non_differentiable(*whole)

    def _backward(self, ctx: Any, *grads: Any) -> Any:
        given = list(ctx.saved_tensors)
        needs = [bool(need) for need in ctx.needs_input_grad[: len(given)]]
        backward = getattr(torch.ops, self.name.split("::")[0])
        backward = getattr(backward, f"{self.task['name']}_backward")
        given_grads = [grad for grad in grads if grad is not None]
        made = iter(backward(given, given_grads, needs, ctx.recompute))
        result = [next(made) if need else None for need in needs]
        return tuple([*result, None] if ctx.flag else result)

    def _register_backward(self) -> None:
        schema = "(Tensor[] given, Tensor[] grads, bool[] needs, bool recompute) -> Tensor[]"
        operator = torch.library.custom_op(
            f"{self.name}_backward",
            self._recompute,
            mutates_args=(),
            device_types=self.task["device"],
            schema=schema,
        )

        def fake(given: Any, grads: Any, needs: Any, recompute: bool) -> list[torch.Tensor]:
            needed = zip(given, needs, strict=True)
            return [torch.empty_like(tensor) for tensor, need in needed if need]

        operator.register_fake(fake)

    def _recompute(
        self,
        given: list[torch.Tensor],
        grads: list[torch.Tensor],
        needs: list[bool],
        recompute: bool,
    ) -> list[torch.Tensor]:
        """Gradients by autograd through the reference."""
        if not recompute:
            raise RuntimeError(
                f"failed to compute gradients of {self.name}: no backward pass was judged. Make "
                "the module with `recompute=True` to compute them through the reference, or call "
                "it under torch.no_grad()"
            )
        stream = torch.cuda.current_stream() if self.task["device"] == "cuda" else None

        def compute() -> list[torch.Tensor]:
            with torch.cuda.stream(stream):
                return self._gradients(given, grads, needs)

        # Operators run below autograd, which the reference needs: a new thread begins above it.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(compute).result()

    def _gradients(
        self, given: list[torch.Tensor], grads: list[torch.Tensor], needs: list[bool]
    ) -> list[torch.Tensor]:
        pairs = zip(given, needs, strict=True)
        leaves = [tensor.detach().requires_grad_(need) for tensor, need in pairs]
        results: list[torch.Tensor] = []
        _trees.flatten(self._reference(leaves), results)
        kept = [result for result in results if result.is_floating_point()]
        used = [(r, g) for r, g in zip(kept, grads, strict=False) if r.requires_grad]
        needed = [leaf for leaf, need in zip(leaves, needs, strict=True) if need]
        made = torch.autograd.grad(
            [result for result, _ in used],
            needed,
            [grad.to(result.dtype) for result, grad in used],
            allow_unused=True,
        )
        return [
            torch.zeros_like(leaf) if grad is None else grad.detach().clone()
            for leaf, grad in zip(needed, made, strict=True)
        ]

    def _reference(self, leaves: list[torch.Tensor]) -> Any:
        workload = self._found(tuple(leaves))
        if self.reference is None:
            self.reference = self.template()
        device = leaves[0].device
        model = self.reference.to(device)
        names = list(model.state_dict())
        used = [names[position] for position in self.task["weights"]]
        given = dict(zip(used, leaves[self.inputs :], strict=True))
        arguments = _trees.build(workload.spec["trees"][0], leaves[: self.inputs])
        return torch.func.functional_call(model, given, tuple(arguments))

    def template(self) -> torch.nn.Module:
        """The reference with the judged arguments of its constructor."""
        module = self.files.reference(f"{self.workloads[0].spec['folder']}/reference.py")
        args, named = initial(module)
        return module.Model(*args, **named).train(self.task["trains"])


def initial(module: types.ModuleType) -> tuple[list[Any], dict[str, Any]]:
    """The judged arguments of the reference's constructor."""
    given = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
    given = list(given) if hasattr(given, "__next__") else given
    if isinstance(given, dict):
        return [], given
    if not isinstance(given, (list, tuple)):
        return ([] if given is None else [given]), {}
    if len(given) == 2 and isinstance(given[0], (list, tuple)) and isinstance(given[1], dict):
        return list(given[0]), given[1]
    return list(given), {}


def _packed(made: list[torch.Tensor]) -> Any:
    if len(made) == 1:
        return made[0]
    return tuple(made) if made else None
