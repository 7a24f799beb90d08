"""A task's reference: its module, model and inputs. Runs the task's own code."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import inspect
import random
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from . import forms, hostdevice, records
from .arguments import Arguments
from .channel import Refusal

TASK = "model"
"""Name of the module of a task. The module may be loaded again by other names."""
MOST_BUFFERS = 256 << 20
"""Largest size in bytes of buffers that are copied: memory planning does not include the copy."""
CASTS = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The dtypes that a task may be cast to, by the names of the command line."""
WIDE = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
"""The dtypes that are cast. Formats of 8 bits and complex numbers stay."""
_loaded: list[tuple[str, Path]] = []
"""Names and folders of this process's loaded modules."""


def load_module(source: str, name: str) -> ModuleType:
    """Executes Python text as a module. Writes it to this process's private folder first, so that
    tracebacks and ``inspect`` find its lines."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    _loaded.append((name, folder))
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Refusal("raised", f"failed to load {name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def prepare(model: torch.nn.Module) -> None:
    """Calls a candidate's ``prepare()``, in which it may precompute values from its weights.
    Ignores a submodule or a tensor of that name, and a method that needs arguments."""
    method = getattr(type(model), "prepare", None)
    if not callable(method):
        return
    with contextlib.suppress(ValueError):  # a method without a signature is called
        try:
            inspect.signature(model.prepare).bind()
        except TypeError:
            return
    with torch.no_grad():
        model.prepare()


def placed(model: torch.nn.Module, device: torch.device | str, mode: str) -> torch.nn.Module:
    """A candidate's new model on the device. ``mode`` may name a dtype, as in ``eval:bf16``. Then
    its floating parameters and buffers are cast, as the reference's source casts those of the
    reference; before they are moved, because a cast on the device is a launch."""
    dtype = next((CASTS[part] for part in mode.split(":") if part in CASTS), None)
    if dtype is not None:
        model = model._apply(lambda t: t.to(dtype) if t.dtype in WIDE else t)
    return model.to(device)


def in_mode(model: torch.nn.Module, mode: str) -> torch.nn.Module:
    """``model`` in training or evaluation mode."""
    return model.train() if mode.partition(":")[0] == "train" else model.eval()


def unload() -> None:
    """Unloads the loaded modules, and removes their files."""
    while _loaded:
        name, folder = _loaded.pop()
        sys.modules.pop(name, None)
        shutil.rmtree(folder, ignore_errors=True)


def seed_everything(seed: int) -> None:
    """Seeds Python, torch and, where present, numpy.

    ``torch.manual_seed`` would record a stack trace for each uninitialised device library, to seed
    it later. That takes a third of the time of making small inputs, and memory that is never freed.
    """
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    with contextlib.suppress(ImportError):
        import numpy

        numpy.random.seed(seed & 0xFFFF_FFFF)


def bound(device_bytes: int | None) -> None:
    """Limits torch's own memory on the GPU to ``device_bytes``. A task that needs more then fails
    here and takes no memory from other processes. None: no limit."""
    if device_bytes is not None:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(device_bytes / total, 1.0))


def to_device(value: Any, device: torch.device) -> Any:
    """``value`` with every tensor on ``device``."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device)
    if (named := records.items(value)) is not None:
        moved = [(name, to_device(item, device)) for name, item in named]
        return records.rebuilt(type(value), moved)
    if isinstance(value, Arguments):
        named = {name: to_device(item, device) for name, item in value.named.items()}
        return Arguments((to_device(item, device) for item in value), named)
    if isinstance(value, tuple):
        return tuple(to_device(item, device) for item in value)
    if isinstance(value, list):
        return [to_device(item, device) for item in value]
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    return value


class Reference:
    """The loaded reference of one task. The constructor usually makes a model on the host, and the
    model stays there until ``move``: making one takes seconds without need of the device."""

    init: Any
    """Arguments of the model's constructor, after ``make``."""

    def __init__(self, source: str, device: str, mode: str, name: str = TASK) -> None:
        self.device = torch.device(device)
        self.mode = mode
        if self.device.type == "cuda":
            torch.cuda.init()  # an uninitialised GPU would not be seeded
        if self.device.type == "cpu":
            hostdevice.map_cuda_to_host(source, pretend=False)
        self.module = load_module(source, name)
        if name == TASK:
            records.forget()
        for needed in ("Model", "get_inputs"):
            if not hasattr(self.module, needed):
                raise Refusal("incomplete", f"the reference defines no {needed}")

    def make(self, seed: int) -> torch.nn.Module:
        """Makes the arguments of the constructor; returns the first model, with the weights of
        ``seed``."""
        seed_everything(seed)
        init = forms.drawn(getattr(self.module, "get_init_inputs", list))
        self.init = forms.constructor(init, self.module.Model)
        return self.build(seed)

    def build(self, seed: int) -> torch.nn.Module:
        """Another model with the weights of ``seed``."""
        seed_everything(seed)
        # Tensors computed from weights here, as weight_norm does, must not be part of a graph: such
        # tensors cannot be copied.
        with torch.no_grad():
            if isinstance(self.init, dict):
                model = self.module.Model(**self.init)
            else:
                model = self.module.Model(*self.init)
        return model.train() if self.mode == "train" else model.eval()

    def move(self, model: torch.nn.Module) -> torch.nn.Module:
        """``model``, moved to the device."""
        return model.to(self.device)

    def inputs(self, seed: int) -> list[Any]:
        """``get_inputs()`` as arguments of ``forward``, seeded, with the current device as
        default."""
        seed_everything(seed)
        made = None
        if self.device.type == "cuda":
            # Some tasks pass generators or arrays on the host; these make inputs there.
            with contextlib.suppress(RuntimeError, TypeError), self.device:
                made = forms.drawn(self.module.get_inputs)
        if made is None:
            seed_everything(seed)
            made = forms.drawn(self.module.get_inputs)
        given = forms.arguments(made, self.module.Model.forward)
        if self.module.__name__ == TASK:
            records.remember(given)
        return to_device(given, self.device)


def perturb(model: torch.nn.Module, seed: int) -> None:
    """Perturbs every parameter and every normalisation statistic.

    With defaults, such as a scale of one and a bias of zero, a kernel could omit them unnoticed.
    Buffers that are not statistics keep their values: see ``other_buffers``.
    """
    generator = torch.Generator().manual_seed(seed)

    def noise(like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=generator, dtype=torch.float32).to(like)

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                spread = parameter.float().std(correction=0).item() if parameter.numel() > 1 else 0
                parameter.mul_(1 + 0.2 * noise(parameter))
                parameter.add_(noise(parameter), alpha=0.1 * spread or 0.1)
        for module in model.modules():
            if isinstance(module, torch.nn.modules.batchnorm._NormBase):
                if module.running_mean is not None:
                    module.running_mean.add_(noise(module.running_mean), alpha=0.3)
                if module.running_var is not None:
                    module.running_var.mul_(0.5 + noise(module.running_var).abs())


def other_buffers(model: torch.nn.Module, seed: int) -> torch.nn.Module | None:
    """A copy of the model with other values in the buffers of its ``state_dict``, which loaded
    weights may replace. Scales and tables are multiplied by random factors; offsets of zero become
    positive. It shares the parameters of ``model``. None if no buffer changes: masks, indices and
    counts keep their values, and so do statistics, which ``perturb`` changes."""
    if sum(buffer.numel() * buffer.element_size() for buffer in model.buffers()) > MOST_BUFFERS:
        return None
    generator = torch.Generator().manual_seed(seed)
    kept = {id(tensor): tensor for tensor in model.parameters()}
    other, moved = copy.deepcopy(model, kept), False
    for module in other.modules():
        if isinstance(module, torch.nn.modules.batchnorm._NormBase):
            continue
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                moved = _move_buffer(buffer, generator) or moved
    return other if moved else None


def _move_buffer(buffer: torch.Tensor, generator: torch.Generator) -> bool:
    """Gives a buffer other values, if they would be valid."""
    if not buffer.numel() or buffer.is_complex() or buffer.dtype == torch.bool:
        return False
    if buffer.is_floating_point():
        if buffer.element_size() == 1 or not bool(torch.isfinite(buffer).all()):
            return False
        if bool((buffer == buffer.round()).all()) and not bool((buffer == 1).all()):
            return False
        # A matrix may be symmetric, orthogonal or an outer product, so it is scaled as a whole.
        shape = buffer.shape if buffer.dim() < 2 else ()
        noise = torch.randn(shape, generator=generator)
        buffer.mul_(1 + 0.2 * noise.to(buffer))
        return True
    # An index usually has 64 bits, and an offset of zero has fewer.
    if buffer.dtype == torch.int64 or bool(buffer.any()):
        return False
    buffer.copy_(torch.randint(1, 4, buffer.shape, generator=generator))
    return True
