"""Modules that replace references: they call the operator where it was judged, else the
reference."""

from __future__ import annotations

import inspect
import os
import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from . import _operators, _trees
from ._launch import misfit, nearer
from ._native import UnavailableError
from ._operators import Operator
from ._package import Files, MismatchError
from ._steps import Step

# Modules that compute the same in training as in evaluation.
SAME_IN_TRAINING = """
Linear Bilinear Identity LayerNorm RMSNorm GroupNorm Embedding Flatten Unflatten
Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
ReLU ReLU6 LeakyReLU PReLU ELU SELU CELU GELU SiLU Mish Sigmoid Tanh Softplus Softsign
Softmax LogSoftmax Hardtanh Hardswish Hardsigmoid
MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d
AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
Sequential ModuleList ModuleDict ParameterList ParameterDict
"""


class Task:
    """A task of a package: its operator, and what decides whether it is called."""

    def __init__(self, files: Files, namespace: str, spec: dict[str, Any]) -> None:
        self.files = files
        self.spec = spec
        self.operator = Operator(files, namespace, spec)
        self.step = Step(self.operator) if spec["steps"] else None
        self.unavailable: str | None = None
        self.devices: frozenset[int] = frozenset()
        self.checked = False
        # Names of the state and plain attributes of the reference, which layers compare with.
        self.judged: tuple[list[str], list[Any]] | None = None
        self.lock = threading.Lock()
        self.reasons: Counter[str] = Counter()
        self.warned: set[str] = set()
        _tasks[self.operator.name] = self
        self.source = files.read(f"{spec['workloads'][0]['folder']}/reference.py").decode()
        self.cast = _cast(self.source)

    def check(self) -> None:
        """Finds out once whether this machine can run the kernels."""
        if self.checked:
            return
        with self.lock:
            if self.checked:
                return
            try:
                self.unavailable = self._lacks()
                if self.unavailable is None:
                    for workload in self.operator.workloads:
                        workload.load(self._device())
            except UnavailableError as error:
                self.unavailable = str(error)
            self.checked = True

    def _device(self) -> torch.device:
        """A device that the kernels are for; the current one if it is one."""
        if self.spec["device"] == "cpu":
            return torch.device("cpu")
        current = torch.cuda.current_device()
        return torch.device("cuda", current if current in self.devices else min(self.devices))

    def _lacks(self) -> str | None:
        if self.spec["device"] == "cpu":
            here, judged = _processor(), self.spec["processor"]
            if judged and here != judged:
                return f"the kernels are machine code for {judged}, and this is {here}"
            return None
        if not torch.cuda.is_available():
            return "there is no CUDA device"
        if torch.version.cuda is None:
            return "this torch was built without CUDA"
        wanted = self.spec["arch"].removeprefix("sm_").rstrip("af")
        fits = set()
        for index in range(torch.cuda.device_count()):
            major, minor = torch.cuda.get_device_capability(index)
            if f"{major}{minor}" == wanted:
                fits.add(index)
        self.devices = frozenset(fits)
        if not fits:
            name = torch.cuda.get_device_name()
            return f"the kernels are compiled for {self.spec['arch']}, and this is {name}"
        return None

    def mismatch(
        self, module: torch.nn.Module, names: list[str], args: tuple[Any, ...]
    ) -> tuple[list[torch.Tensor], int, str | None]:
        """The tensors and the workload's position for the operator, or why it is not called."""
        if self.unavailable is not None:
            return [], 0, self.unavailable
        if len(names) != len(self.spec["state"]):
            return [], 0, "the module has another state_dict"
        if module.training != self.spec["trains"] and not same_in_training(module, self.source):
            return [], 0, "the module is in another mode (train, eval)"
        if self.spec["trains"] and any(True for _ in module.buffers()):
            return [], 0, "buffers change in training"
        if torch.is_autocast_enabled(self.spec["device"]):
            return [], 0, "autocast"
        inputs: list[torch.Tensor] = []
        chosen, why = 0, "structure"
        for index, workload in enumerate(self.operator.workloads):
            inputs = []
            trees = [_as_list(tree) for tree in workload.spec["trees"]]
            if self.step is not None:
                trees = [_as_list(tree["list"][0]) for tree in trees]
            if _trees.match(list(args), trees[0], trees[1], inputs):
                this = workload.misfit(inputs, len(inputs))
                if this is None:
                    chosen, why = index, ""
                    break
                why = nearer(why, this)
        if why:
            return [], 0, f"{why} of the inputs"
        weights = []
        for position in self.spec["weights"]:
            weight: Any = module
            for part in names[position].split("."):
                weight = getattr(weight, part, None)
            if not isinstance(weight, torch.Tensor):
                return [], 0, "the module has another state_dict"
            unlike = misfit(weight, self.spec["state"][position])
            if unlike is not None:
                return [], 0, f"{unlike} of the weights"
            weights.append(weight)
        # Traced code cannot ask; there the operator prepares such weights at each call.
        prepares = self.operator.workloads[chosen].spec["prepares"]
        asked = prepares and not torch.compiler.is_compiling()
        if asked and any(weight.is_inference() for weight in weights):
            return [], 0, "weights in inference mode"
        tensors = [*inputs, *weights]
        first = tensors[0].device
        if first.type != self.spec["device"]:
            return [], 0, f"device {first.type}"
        for tensor in tensors:
            if tensor.device != first:
                return [], 0, "tensors on several devices"
        if self.spec["device"] == "cuda" and first.index not in self.devices:
            return [], 0, f"the kernels are compiled for {self.spec['arch']}"
        return tensors, chosen, None

    def result(self, tensors: list[torch.Tensor], index: int, recompute: bool) -> Any:
        """Calls the operator."""
        if self.step is not None:
            return self.step.result(tensors, index)
        made = self.operator.call(*tensors, recompute, index)
        workload = self.operator.workloads[index]
        if made is None:
            made = ()
        rest = [made] if isinstance(made, torch.Tensor) else list(made)
        results = []
        for form in workload.spec["results"]:
            if "slot" in form["home"]:
                results.append(rest.pop(0))
                continue
            given = tensors[form["home"]["input"]]
            offset = given.storage_offset() + form["offset"] // given.element_size()
            results.append(given.as_strided(form["shape"], form["strides"], offset))
        return _trees.build(workload.spec["tree"], results)


def _as_list(tree: dict[str, Any]) -> dict[str, Any]:
    ((_, body),) = tree.items()
    return {"list": body}


PLAIN = (bool, int, float, str, type(None), torch.dtype)


def _plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) in PLAIN and _plain(item) for key, item in value.items())
    return type(value) in PLAIN or (type(value) in (list, tuple) and all(map(_plain, value)))


def _kept(value: Any) -> Any:
    """A copy of a plain value that changes in place do not reach."""
    if type(value) is dict:
        return {key: _kept(item) for key, item in value.items()}
    return type(value)(map(_kept, value)) if type(value) in (list, tuple) else value


def _equal(one: Any, judged: Any) -> bool:
    """Whether a value is the judged plain one, by element and with its types. The order of a dict
    counts: a reference may walk through it."""
    if type(one) is not type(judged):
        return False
    if type(judged) is dict:
        return _equal(list(one.items()), list(judged.items()))
    if type(judged) is list or type(judged) is tuple:
        same = len(one) == len(judged)
        return same and all(_equal(one[index], item) for index, item in enumerate(judged))
    return bool(one == judged)


def numbers(module: torch.nn.Module) -> list[tuple[list[str], str, Any]]:
    """The plain attributes of a module and of its parts, which a plan holds as constants. A part
    without a name of an attribute is its class."""
    found: list[tuple[list[str], str, Any]] = []
    for path, part in module.named_modules():
        steps = path.split(".") if path else []
        if steps:
            found.append((steps, "", type(part)))
        for name, value in vars(part).items():
            own = name[0] == "_" or name == "training" or name.startswith("warpwright_")
            if not own and _plain(value):
                found.append((steps, name, _kept(value)))
    return found


def changed(module: torch.nn.Module, judged: list[tuple[list[str], str, Any]]) -> str | None:
    """The attribute that is not as judged."""
    for path, name, value in judged:
        part: Any = module
        for step in path:
            part = getattr(part, step, None)
        if not name:
            if not _same_class(type(part), value):
                return ".".join(path)
            continue
        if not _equal(getattr(part, name, None), value):
            return name
    return None


def _same_class(one: type, other: type) -> bool:
    """Whether two classes are the same; of a model's own classes the package has a copy."""
    if one is other:
        return True
    own = not one.__module__.startswith("torch.") and not other.__module__.startswith("torch.")
    return own and one.__name__ == other.__name__


def same_in_training(module: torch.nn.Module, source: str) -> bool:
    """Whether ``train()`` and ``eval()`` make no difference, as far as can be seen."""
    if "training" in source or "dropout" in source.lower() or "batch_norm" in source:
        return False
    names = SAME_IN_TRAINING.split()
    kinds = [type(child) for child in module.modules() if child is not module]
    return all(kind.__name__ in names and kind.__module__.startswith("torch.nn.") for kind in kinds)


def _cast(source: str) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """What `--dtype` does with parameters and buffers: the reference casts those of its own class
    only, not of classes that inherit from it."""
    found = re.findall(r"^_warpwright_cast\(['\"](\w+)['\"]\)$", source, re.MULTILINE)
    if not found:
        return None
    dtype = getattr(torch, found[-1])
    wide = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
    return lambda tensor: tensor.to(dtype) if tensor.dtype in wide else tensor


_tasks: dict[str, Task] = {}


@torch.compiler.assume_constant_result
def _note(name: str, why: str) -> bool:
    """Counts a fallback, and says it once. Under ``torch.compile`` it is counted when traced."""
    task = _tasks[name]
    task.reasons[why] += 1
    if why not in task.warned:
        task.warned.add(why)
        warnings.warn(
            f"{task.operator.name} falls back to the reference: {why}", RuntimeWarning, stacklevel=4
        )
    return True


@torch.compiler.assume_constant_result
def ready(name: str) -> bool:
    """Checks the machine once. ``torch.compile`` runs it while it traces, and traces none of it."""
    task = _tasks[name]
    if task.judged is None:
        template = task.operator.template()
        task.judged = list(template.state_dict()), numbers(template)
    task.check()
    return True


def _positional(
    names: list[str], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], bool]:
    """The arguments in order, and whether all are."""
    for name in names[len(args) :]:
        if name in named:
            args = (*args, named.pop(name))
    return args, not named


class Package:
    """The tasks of a package."""

    def __init__(self, files: Files) -> None:
        self.files = files
        namespace = files.spec["namespace"]
        self.tasks = {spec["name"]: Task(files, namespace, spec) for spec in files.spec["tasks"]}
        self.modules: dict[str, type[torch.nn.Module]] = {}

    def stats(self) -> dict[str, Any]:
        """Which paths were taken, by task: calls of ``kernel``, and of ``fallback`` with
        ``reasons``; sets of weights that were ``prepared``; tensors that were copied to be
        ``aligned``."""
        found = {}
        for name, task in self.tasks.items():
            total: Counter[str] = Counter()
            for workload in task.operator.workloads:
                total.update(workload.stats)
            found[name] = {
                "kernel": total["kernel"],
                "fallback": task.reasons.total(),
                "reasons": dict(task.reasons),
                "prepared": total["prepared"],
                "aligned": total["aligned"],
            }
        return found

    def invalidate(self) -> None:
        """Prepares all weights again at the next call. Changes through ``.data`` are not seen
        otherwise."""
        for task in self.tasks.values():
            for workload in task.operator.workloads:
                workload.invalidate()

    def module(self, name: str) -> type[torch.nn.Module]:
        """The class that replaces the reference of a task."""
        task = self.tasks[name]
        reference = self.files.reference(f"{task.spec['workloads'][0]['folder']}/reference.py")
        made = _module(task, reference)
        self.modules[name] = made
        return made

    def layers(self) -> Any:
        """Layers for ``kernels.kernelize``."""
        from . import layers

        layers.fill(self)
        return layers


def open_package(files: Files) -> Package:
    """The package of these files. A second copy of it is the first, whose operators are called."""
    namespace = files.spec["namespace"]
    package = _operators.opened(files, namespace)
    if package is None:
        package = _operators.registered()[namespace] = Package(files)
    return package


def _module(task: Task, reference: Any) -> type[torch.nn.Module]:
    model = reference.Model
    called = model.warpwright_forward if task.step is not None else model.forward
    parameters = list(inspect.signature(called).parameters)[1:]
    judged = _operators.initial(reference)

    class Module(model):  # type: ignore[misc, valid-type]
        """The reference's module, whose ``forward`` is the judged kernel where it was judged.

        ``recompute``: gradients by autograd through the reference; without it they are an error.
        ``on_mismatch``: outside of what was judged, ``"fallback"`` calls the reference, and
        ``"raise"`` raises ``MismatchError``.
        """

        def __init__(
            self, *args: Any, recompute: bool = False, on_mismatch: str = "fallback", **named: Any
        ) -> None:
            if on_mismatch not in ("fallback", "raise"):
                raise ValueError(f'on_mismatch is "fallback" or "raise", not {on_mismatch!r}')
            if not args and not named:
                args, named = judged
            super().__init__(*args, **named)
            if task.cast is not None:
                self._apply(task.cast)
            self.train(task.spec["trains"])
            self.warpwright_recompute = recompute
            self.warpwright_raises = on_mismatch == "raise"
            self.warpwright_names = list(self.state_dict())
            self.warpwright_numbers = numbers(self)
            same = _same(list(args), judged[0]) and list(named) == list(judged[1])
            self.warpwright_as_judged = same and _same([*named.values()], [*judged[1].values()])
            task.check()

        def forward(self, *args: Any, **named: Any) -> Any:
            all_named = dict(named)
            ordered, complete = _positional(parameters, args, all_named)
            tensors: list[torch.Tensor] = []
            index, why = 0, None
            if not complete:
                why = "named arguments"
            elif not self.warpwright_as_judged:
                why = "arguments of the constructor"
            elif (attribute := changed(self, self.warpwright_numbers)) is not None:
                why = f"attribute {attribute} of the module"
            else:
                tensors, index, why = task.mismatch(self, self.warpwright_names, ordered)
            if why is None:
                return task.result(tensors, index, self.warpwright_recompute)
            if self.warpwright_raises:
                raise MismatchError(f"{task.operator.name} was not judged for this call: {why}")
            _note(task.operator.name, why)
            return called(self, *args, **named)

    Module.__name__ = Module.__qualname__ = task.spec["class"]
    Module.__module__ = __name__.rpartition(".")[0] or __name__
    return Module


def _same(given: list[Any], judged: list[Any]) -> bool:
    """Whether arguments of the constructor are the judged ones; tensors are not compared."""
    if len(given) != len(judged):
        return False
    for one, other in zip(given, judged, strict=True):
        if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
            return False
        if type(one) is not type(other) or repr(one) != repr(other):
            return False
    return True


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return os.uname().machine
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else os.uname().machine
