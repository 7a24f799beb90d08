"""Loads the user's model and its input sets. Runs the user's code."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from .failure import Failed, told

MOST_INPUT_SETS = 16
"""Each set is profiled, and each shape of a region is traced."""
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
"""By the names of the command line."""
TOKENS = 128
"""Length of the sequence that a transformers model gets without a file of inputs."""


def from_file(path: str, kind: str) -> ModuleType:
    """Executes a Python file as a module. Modules beside it can be imported."""
    file = Path(path)
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(f"warpwright_user_{kind}", file)
    if spec is None or spec.loader is None:
        raise Failed(kind, f"{file.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Failed(kind, f"{file.name} raised {told(error)}") from error
    return module


def function_of(request: dict[str, Any]) -> Callable[[], Any]:
    """The function that makes the model."""
    name = request["function"]
    if "file" in request:
        module = from_file(request["file"], "model")
        where = Path(request["file"]).name
    else:
        where = request["module"]
        sys.path.insert(0, request["folder"])
        try:
            module = importlib.import_module(where)
        except Exception as error:
            raise Failed("model", f"importing {where} raised {told(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise Failed("model", f"{where} has no function `{name}`")
    return function


def of_transformers(path: str, dtype: str | None) -> torch.nn.Module:
    """A model of transformers with random weights. Some of its buffers keep their own dtype."""
    try:
        import transformers
    except ImportError as error:
        raise Failed("transformers", f"importing transformers raised {told(error)}") from error
    try:
        fields = json.loads(Path(path).read_text())
        architectures = fields.get("architectures") or []
        config = transformers.AutoConfig.for_model(**fields)
    except Exception as error:
        raise Failed("model", f"{Path(path).name} is no configuration: {told(error)}") from error
    made = getattr(transformers, str(architectures[0]), None) if architectures else None
    maker = transformers.AutoModel.from_config if made is None else made._from_config
    try:
        return maker(config) if dtype is None else maker(config, dtype=DTYPES[dtype])
    except Exception as error:
        raise Failed("model", f"making the model raised {told(error)}") from error


def load_model(request: dict[str, Any], dtype: str | None, device: str) -> torch.nn.Module:
    """The model, in evaluation mode on the device."""
    if "hf" in request:
        model = of_transformers(request["hf"], dtype)
    else:
        try:
            model = function_of(request)()
        except Failed:
            raise
        except Exception as error:
            raise Failed("model", f"`{request['function']}` raised {told(error)}") from error
    if not isinstance(model, torch.nn.Module):
        kind = type(model).__name__
        raise Failed("model", f"`{request['function']}` returned a {kind}, no torch.nn.Module")
    try:
        if dtype is not None and "hf" not in request:
            model = model.to(DTYPES[dtype])
        return model.to(device).eval()
    except Exception as error:
        raise Failed("model", f"moving the model to {device} raised {told(error)}") from error


class InputSet:
    """The arguments of one call of the model."""

    def __init__(self, name: str, given: Any) -> None:
        self.name = name
        if isinstance(given, dict):
            self.args, self.kwargs = (), given
        elif isinstance(given, (list, tuple)):
            self.args, self.kwargs = tuple(given), {}
        else:
            kind = type(given).__name__
            raise Failed("inputs", f"`get_inputs` returned a {kind}, no list and no dict")


def placed(value: Any, device: str, dtype: torch.dtype | None) -> Any:
    """``value`` with its tensors on the device, and its floating tensors cast."""
    if isinstance(value, torch.Tensor):
        cast = dtype is not None and value.is_floating_point()
        return value.detach().to(device=device, dtype=dtype if cast else None)
    if type(value) in (list, tuple):
        return type(value)(placed(item, device, dtype) for item in value)
    if type(value) is dict:
        return {key: placed(item, device, dtype) for key, item in value.items()}
    return value


def listed(module: ModuleType) -> list[tuple[str, dict[str, Any]]]:
    """The names and arguments of ``get_workloads``; one set without arguments if there is none."""
    if not hasattr(module, "get_workloads"):
        return [("inputs", {})]
    sets = []
    for number, item in enumerate(module.get_workloads(), 1):
        if not isinstance(item, dict):
            raise Failed("inputs", "an item of `get_workloads` is no dict")
        named = "arguments" in item
        arguments = item["arguments"] if named else item
        name = item.get("name") if named else None
        sets.append((str(name or f"inputs{number}"), arguments))
    if not 0 < len(sets) <= MOST_INPUT_SETS:
        text = f"`get_workloads` lists {len(sets)} input sets, not 1 to {MOST_INPUT_SETS}"
        raise Failed("inputs", text)
    if len({name for name, _ in sets}) < len(sets):
        raise Failed("inputs", "two input sets have the same name")
    return sets


def load_inputs(
    path: str | None, model: torch.nn.Module, device: str, dtype: str | None, seed: int
) -> list[InputSet]:
    """The input sets, in the order of the file."""
    torch.manual_seed(seed)
    if path is None:
        vocabulary = getattr(getattr(model, "config", None), "vocab_size", None)
        if not isinstance(vocabulary, int):
            raise Failed("inputs", "the configuration has no `vocab_size`: name a file of inputs")
        ids = torch.randint(0, vocabulary, (1, TOKENS), device=device)
        given: dict[str, Any] = {"input_ids": ids}
        if "use_cache" in inspect.signature(model.forward).parameters:
            given["use_cache"] = False
        return [InputSet("inputs", given)]
    module = from_file(path, "inputs")
    if not callable(getattr(module, "get_inputs", None)):
        raise Failed("inputs", f"{Path(path).name} has no function `get_inputs`")
    cast = DTYPES[dtype] if dtype is not None else None
    sets = []
    for name, arguments in listed(module):
        context = torch.device(device) if device != "cpu" else contextlib.nullcontext()
        try:
            with context:
                given = module.get_inputs(**arguments)
        except Exception as error:
            raise Failed("inputs", f"`get_inputs` raised for {name}: {told(error)}") from error
        sets.append(InputSet(name, placed(given, device, cast)))
    return sets
