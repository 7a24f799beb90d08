"""``import cuda_extension``: the candidate's launchers as checked Python functions.

A launcher takes pointers, numbers and a trailing stream. Its wrapper takes tensors for pointers
(checked: device, dtype where the C type says it, contiguity) and numbers for scalars; the stream
is supplied; a non-zero result raises.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

SCALARS: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
# Accepted tensor dtypes per C element type. Unsigned words accept every dtype of their width, for
# kernels that move bits. A complex number is a pair of floating-point ones.
ELEMENTS: dict[str, tuple[torch.dtype, ...]] = {
    "float64": (torch.float64, torch.complex128),
    "float32": (torch.float32, torch.complex64),
    "float16": (torch.float16,),
    "bfloat16": (torch.bfloat16,),
    "float8_e4m3fn": (torch.float8_e4m3fn,),
    "float8_e5m2": (torch.float8_e5m2,),
    "int64": (torch.int64,),
    "int32": (torch.int32,),
    "int16": (torch.int16,),
    "int8": (torch.int8,),
    "uint64": (torch.uint64, torch.int64, torch.float64),
    "uint32": (torch.uint32, torch.int32, torch.float32),
    "uint16": (torch.uint16, torch.int16, torch.float16, torch.bfloat16),
    "uint8": (torch.uint8, torch.bool, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2),
    "bool": (torch.bool, torch.uint8),
}


class LaunchError(RuntimeError):
    """A launcher returned an error code."""


def _fail(name: str, index: int, parameter: str, want: str, got: Any) -> None:
    raise TypeError(f"{name}: argument {index} ({parameter}) must be {want}, got {got}")


def _check(name: str, index: int, parameter: dict[str, Any], cuda: bool, value: Any) -> None:
    """Raises with the reason why ``value`` is not acceptable. Not on the fast path."""
    label = parameter["name"]
    if not isinstance(value, torch.Tensor):
        _fail(name, index, label, "a tensor or None", type(value).__name__)
    kind = "cuda" if cuda else "cpu"
    if value.device.type != kind:
        _fail(name, index, label, f"on the {kind} device", f"one on {value.device}")
    if not value.is_contiguous():
        _fail(name, index, label, "contiguous", f"strides {tuple(value.stride())}")
    wanted = ELEMENTS.get(parameter["element"])
    if wanted is not None and value.dtype not in wanted:
        _fail(name, index, label, f"of dtype {wanted[0]}", value.dtype)
    unit = parameter["lanes"] * value.element_size()
    if value.data_ptr() % unit:
        _fail(name, index, label, f"aligned to {unit} bytes", hex(value.data_ptr() % unit))


def wrap(library: ctypes.CDLL, launcher: dict[str, Any], device: str) -> Callable[..., None]:
    """The Python function for one launcher, generated from source. A wrapper that loops over its
    parameters would cost more than a small kernel. So would torch's function for the current
    stream, which creates an object."""
    name = launcher["name"]
    function = getattr(library, name)
    function.restype = None if launcher["returns"] == "void" else ctypes.c_int
    cuda = device.startswith("cuda")
    types: list[Any] = []
    names, checks, arguments = [], [], []
    scope: dict[str, Any] = {"_f": function, "_check": _check, "_T": torch.Tensor}
    for i, parameter in enumerate(launcher["params"]):
        p = f"a{i}"
        names.append(p)
        if parameter["kind"] == "pointer":
            types.append(ctypes.c_void_p)
            scope[f"_p{i}"] = parameter
            wanted = ELEMENTS.get(parameter["element"])
            scope[f"_d{i}"] = wanted
            dtype = f" and {p}.dtype in _d{i}" if wanted else ""
            if wanted and parameter["lanes"] > 1:
                dtype += f" and not {p}.data_ptr() % {parameter['lanes'] * wanted[0].itemsize}"
            place = f"{p}.is_{'cuda' if cuda else 'cpu'}"
            checks.append(
                f"    if {p} is not None and not (isinstance({p}, _T) and {p}.is_contiguous()"
                f"{dtype} and {place}): _check({name!r}, {i}, _p{i}, {cuda}, {p})\n"
            )
            arguments.append(f"{p}.data_ptr() if {p} is not None else None")
        else:
            types.append(SCALARS[parameter["element"]])
            arguments.append(p)
    if launcher["has_stream"]:
        types.append(ctypes.c_void_p)
        if cuda:
            scope["_stream"] = torch._C._cuda_getCurrentRawStream
            scope["_device"] = torch._C._cuda_getDevice
            arguments.append("_stream(_device())")
        else:
            arguments.append("None")
    function.argtypes = types
    call = f"_f({', '.join(arguments)})"
    if launcher["returns"] == "void":
        body = f"    {call}\n"
    else:
        scope["_raise"] = _raise
        body = f"    r = {call}\n    if r: _raise({name!r}, r)\n"
    source = f"def launch({', '.join(names)}):\n{''.join(checks)}{body}"
    exec(compile(source, f"<launcher {name}>", "exec"), scope)
    launch = scope["launch"]
    launch.__name__ = name
    return launch


def _raise(name: str, code: int) -> None:
    raise LaunchError(f"launcher {name} returned error {code}")


def install(artifact: Path, device: str) -> ModuleType:
    """Makes ``cuda_extension`` importable from a built artifact."""
    compiled = artifact / "cuda_extension.so"
    if compiled.exists():
        module = load_compiled("cuda_extension", compiled)
    else:
        module = ModuleType("cuda_extension")
    table = artifact / "launchers.json"
    if table.exists():
        described = json.loads(table.read_text())
        if described["launchers"]:
            library = ctypes.CDLL(str(artifact / described["library"]))
            for launcher in described["launchers"]:
                name = launcher["name"]
                # The preprocessor may have excluded a launcher inside an `#if`.
                if hasattr(library, name) and not hasattr(module, name):
                    setattr(module, name, wrap(library, launcher, device))
    sys.modules["cuda_extension"] = module
    return module


def load_compiled(name: str, path: Path) -> ModuleType:
    """Imports a compiled extension module from a path."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"failed to load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
