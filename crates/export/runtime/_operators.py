"""The operators of a package: schema, kernel, fake kernel, autograd."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import _trees
from ._launch import Workload, nearer
from ._package import Files, PackageError

REGISTRY = "_warpwright_packages"


def registered() -> dict[str, Any]:
    """The packages whose operators this process has, by namespace."""
    module = sys.modules.setdefault(REGISTRY, types.ModuleType(REGISTRY))
    if not hasattr(module, "packages"):
        module.packages = {}
    return module.packages


def opened(files: Files, namespace: str) -> Any:
    """The package that has registered these operators. Another one may not have their name."""
    package = registered().get(namespace)
    if package is not None and package.files.digest != files.digest:
        raise PackageError(
            f"failed to register the operators {namespace}::* of {files.folder}: the package in "
            f"{package.files.folder} has registered others under this name. Import one of the "
            "two, or export one under another name: `warpwright export RUN --name NAME`"
        )
    return package


class Operator:
    """The operator of a task: ``(inputs..., weights..., bool recompute, int workload) -> results``.

    ``workload`` is the position of the judged workload. Without it the tensors decide, where only
    one fits.
    """

    def __init__(self, files: Files, namespace: str, task: dict[str, Any]) -> None:
        self.files = files
        self.task = task
        self.name = f"{namespace}::{task['name']}"
        self.workloads = [Workload(files, task, spec) for spec in task["workloads"]]
        self.inputs = len(task["workloads"][0]["inputs"])
        self.weights = len(task["weights"])
        self.references: dict[torch.device, torch.nn.Module] = {}
        # A call of a reference swaps its weights.
        self.lock = threading.RLock()
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
        return f"({', '.join([*given, 'bool recompute=False', 'int workload=-1'])}) -> {results}"

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

    def choose(self, inputs: list[torch.Tensor], index: int) -> Workload:
        """The judged workload of a call."""
        all_ = self.workloads if index < 0 else self.workloads[index : index + 1]
        found: list[Workload] = []
        why = "structure"
        for workload in all_:
            this = workload.misfit(inputs, len(inputs))
            if this is None:
                found.append(workload)
            else:
                why = nearer(why, this)
        if not found:
            raise RuntimeError(
                f"failed to call {self.name}: the {why} of an input is not what was judged; call "
                "the package's module, which falls back to the reference"
            )
        for other in found[1:]:
            if other.spec["trees"] != found[0].spec["trees"]:
                raise RuntimeError(
                    f"failed to call {self.name}: several workloads were judged on such tensors, "
                    "with other numbers; name one with `workload=INDEX`, or call the package's "
                    "module, which finds it"
                )
        return found[0]

    def _run(self, *args: Any) -> Any:
        return _packed(self.run(*args))

    def run(self, *args: Any) -> list[torch.Tensor]:
        """Launches the judged plan, below autograd."""
        given, _, index = split(args)
        inputs = given[: self.inputs]
        return self.choose(inputs, index).run(inputs, given[self.inputs :])

    def _fake(self, *args: Any) -> Any:
        given, _, index = split(args)
        return _packed(self.choose(given[: self.inputs], index).results(given[0]))

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        given, ctx.recompute, ctx.workload = split(inputs)
        ctx.save_for_backward(*given)
        made = [output] if isinstance(output, torch.Tensor) else list(output or ())
        whole = [result for result in made if not differentiable(result.dtype)]
        if whole:
            ctx.mark_non_differentiable(*whole)

    def _backward(self, ctx: Any, *grads: Any) -> Any:
        given = list(ctx.saved_tensors)
        needs = [bool(need) for need in ctx.needs_input_grad[: len(given)]]
        backward = getattr(torch.ops, self.name.split("::")[0])
        backward = getattr(backward, f"{self.task['name']}__backward")
        workload = self.choose(given[: self.inputs], ctx.workload)
        wanted = []
        for form, grad in zip(workload.made, grads, strict=True):
            dtype = getattr(torch, form["dtype"])
            if differentiable(dtype):
                # Autograd gives none for a result that the loss does not use.
                zeros = given[0].new_zeros(form["shape"], dtype=dtype) if grad is None else grad
                wanted.append(zeros)
        made = iter(backward(given, wanted, needs, ctx.recompute, ctx.workload))
        result = [next(made) if need else None for need in needs]
        return tuple([*result, None, None])

    def _register_backward(self) -> None:
        schema = "(Tensor[] given, Tensor[] grads, bool[] needs, bool recompute, int workload) "
        schema += "-> Tensor[]"
        operator = torch.library.custom_op(
            f"{self.name}__backward",
            self._recompute,
            mutates_args=(),
            device_types=self.task["device"],
            schema=schema,
        )

        def fake(
            given: Any, grads: Any, needs: Any, recompute: bool, workload: int
        ) -> list[torch.Tensor]:
            needed = zip(given, needs, strict=True)
            return [torch.empty_like(tensor) for tensor, need in needed if need]

        operator.register_fake(fake)

    def _recompute(
        self,
        given: list[torch.Tensor],
        grads: list[torch.Tensor],
        needs: list[bool],
        recompute: bool,
        workload: int,
    ) -> list[torch.Tensor]:
        """Gradients by autograd through the reference."""
        if not recompute:
            raise RuntimeError(
                f"failed to compute gradients of {self.name}: no backward pass was judged. Make "
                "the module with `recompute=True` to compute them through the reference, or call "
                "it under torch.no_grad()"
            )
        # Another thread could not do this: on a GPU it would wait for the thread of autograd that
        # is here.
        with above_autograd(), torch.autocast(self.task["device"], enabled=False):
            return self._gradients(given, grads, needs, workload)

    def _gradients(
        self,
        given: list[torch.Tensor],
        grads: list[torch.Tensor],
        needs: list[bool],
        index: int,
    ) -> list[torch.Tensor]:
        pairs = zip(given, needs, strict=True)
        leaves = [tensor.detach().requires_grad_(need) for tensor, need in pairs]
        workload = self.choose(leaves[: self.inputs], index)
        results: list[torch.Tensor] = []
        _trees.flatten(self._reference(workload, leaves), results)
        # An input that is returned has its gradient already: it is no result of the operator.
        forms = zip(results, workload.spec["results"], strict=True)
        kept = [
            result
            for result, form in forms
            if "slot" in form["home"] and differentiable(getattr(torch, form["dtype"]))
        ]
        used = [(r, g) for r, g in zip(kept, grads, strict=True) if r.requires_grad]
        needed = [leaf for leaf, need in zip(leaves, needs, strict=True) if need]
        made: Any = [None] * len(needed)
        if used and needed:
            made = torch.autograd.grad(
                [result for result, _ in used],
                needed,
                [grad.to(result.dtype) for result, grad in used],
                allow_unused=True,
            )
        # Strides as the fake kernel has them.
        return [
            torch.zeros_like(leaf) if grad is None else torch.empty_like(leaf).copy_(grad)
            for leaf, grad in zip([leaf.detach() for leaf in needed], made, strict=True)
        ]

    def _reference(self, workload: Workload, leaves: list[torch.Tensor]) -> Any:
        device = leaves[0].device
        with self.lock:
            model = self.references.get(device)
            if model is None:
                model = self.references[device] = self.template().to(device)
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


def split(args: tuple[Any, ...]) -> tuple[list[torch.Tensor], bool, int]:
    """The tensors of a call, `recompute` and `workload`; torch leaves out defaults at the end."""
    given = [value for value in args if isinstance(value, torch.Tensor)]
    rest = [*args[len(given) :], *(False, -1)[len(args) - len(given) :]]
    return given, bool(rest[0]), int(rest[1])


def differentiable(dtype: torch.dtype) -> bool:
    """Whether results of this dtype have gradients."""
    return dtype.is_floating_point or dtype.is_complex


@contextmanager
def above_autograd() -> Iterator[None]:
    """Records operations for autograd inside an operator, which runs below it.

    Torch has no public way to do this; a torch without the private one is refused by name.
    """
    excluded = getattr(torch._C, "_dispatch_tls_is_dispatch_key_excluded", None)
    exclude = getattr(torch._C, "_dispatch_tls_set_dispatch_key_excluded", None)
    if excluded is None or exclude is None:
        raise RuntimeError(
            "failed to compute gradients through the reference: torch "
            f"{torch.__version__} has no switch for it. Call the module under torch.no_grad(), "
            "train with the reference, or install another version of torch"
        )
    keys = [
        key
        for name, key in torch._C.DispatchKey.__members__.items()
        if name.startswith("Autograd") or name == "ADInplaceOrView"
    ]
    hidden = [key for key in keys if excluded(key)]
    for key in hidden:
        exclude(key, False)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for key in hidden:
            exclude(key, True)
