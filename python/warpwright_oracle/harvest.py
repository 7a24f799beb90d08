"""KernelBench's single-file form: finds and replaces `torch.utils.cpp_extension`.

A candidate may compile its kernels from strings, with `load_inline` or `load`. Nothing is compiled
where a candidate runs. Instead

* `python -I harvest.py FOLDER OUT [REFERENCE]` runs `FOLDER/model_new.py` in the builder's jail
  with a `cpp_extension` that records the sources and returns a module of placeholders. If importing
  recorded nothing, `ModelNew` is constructed, on the meta device, with the reference's init inputs;
* the builder compiles what OUT lists;
* the runner calls `install(ARTIFACT_FOLDER)`, and the same calls then load the finished libraries.

Both sides name a module by `key(...)`, a hash of its sources, so nothing else has to agree.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import json
import re
import sys
import types
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

FORMAT = 1
MAX_MODULES = 32
MAX_SOURCE_BYTES = 4 << 20

# Flags without effect here, or that the builder passes anyway. Every other flag is dropped, and the
# builder reports it: a candidate does not choose how it is compiled.
HARMLESS = re.compile(
    r"-O[0-3]|-std=c\+\+(14|17|20)|--std=c\+\+(14|17|20)|-lineinfo|--generate-line-info|-fPIC"
    r"|--expt-relaxed-constexpr|--expt-extended-lambda|--extended-lambda|-Xcompiler|-w|-Wall"
    r"|-lcublas|-lcublasLt|-lcudnn|-lcudart|-gencode.*|-arch=.*|--gpu-architecture=.*|"
)


class HarvestError(Exception):
    """The candidate used a feature that the harvest does not support."""


def texts(value: object) -> list[str]:
    """One source or several, as a list."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    return [str(v) for v in value]  # type: ignore[attr-defined]


def function_docs(functions: object) -> dict[str, str] | None:
    """`functions` as `load_inline` takes it: a name, names, or names with their docstrings."""
    if functions is None:
        return None
    if isinstance(functions, dict):
        return {str(k): str(v) for k, v in functions.items()}
    return {name: name for name in texts(functions)}


def key(cpp: list[str], cuda: list[str], functions: dict[str, str] | None) -> str:
    """A module's key: the SHA-256 of its sources and functions, hexadecimal."""
    parts = [cpp, cuda, None if functions is None else sorted(functions)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def identity(*args: object, **kwargs: object) -> str:
    """The key of the module for these arguments of `load_inline` or `load`."""
    given = dict(zip(("name", "cpp_sources", "cuda_sources", "functions"), args, strict=False))
    given.update(kwargs)
    second = texts(given.get("cpp_sources"))
    named = all(re.fullmatch(r"[\w./-]+\.(cu|cpp|cc|cxx)", s) for s in second) and bool(second)
    if "sources" in given or named:
        return key(*read_sources(given.get("sources", second)), None)
    cuda = texts(given.get("cuda_sources"))
    return key(second, cuda, function_docs(given.get("functions")))


def module_name(name: object) -> str:
    """A name that C++ and Python accept."""
    text = re.sub(r"\W", "_", str(name), flags=re.ASCII)[:64]
    return text if re.match(r"[A-Za-z_]", text) else f"m_{text}"


def read_sources(sources: object) -> tuple[list[str], list[str]]:
    """Host and device sources of `load`, as their texts."""
    cpp: list[str] = []
    cuda: list[str] = []
    for path in texts(sources):
        text = Path(path).read_text()
        (cuda if path.endswith(".cu") else cpp).append(text)
    return cpp, cuda


def install_module(
    load_inline: Callable[..., object], load: Callable[..., object]
) -> types.ModuleType:
    """Installs a module of these two functions as `torch.utils.cpp_extension`.

    The real module is never imported: it needs setuptools and half a second.
    """
    import torch.utils

    module = types.ModuleType("torch.utils.cpp_extension")

    def refused(*_args: object, **_kwargs: object) -> None:
        raise HarvestError("only load_inline and load are available from torch.utils.cpp_extension")

    def paths(*_args: object, **_kwargs: object) -> list[str]:
        return []

    contents: dict[str, object] = {
        "load_inline": load_inline,
        "load": load,
        "include_paths": paths,
        "library_paths": paths,
        "CUDA_HOME": None,
        "BuildExtension": refused,
        "CUDAExtension": refused,
        "CppExtension": refused,
        "is_ninja_available": lambda: True,
        "verify_ninja_availability": lambda: None,
        "__file__": __file__,
    }
    for name, value in contents.items():
        setattr(module, name, value)
    sys.modules["torch.utils.cpp_extension"] = module
    torch.utils.cpp_extension = module  # type: ignore[attr-defined]
    return module


def install(artifact: str | Path) -> None:
    """Makes `load_inline` and `load` return the modules that the builder put into the artifact
    folder."""
    folder = Path(artifact)
    table: dict[str, dict[str, str]] = {}
    listing = folder / "inline.json"
    if listing.exists():
        table = json.loads(listing.read_text())["modules"]
    loaded: dict[str, types.ModuleType] = {}

    def find(*args: object, **kwargs: object) -> object:
        name = identity(*args, **kwargs)
        if name not in loaded:
            entry = table.get(name)
            if entry is None:
                raise HarvestError(
                    "these inline sources were not seen when the candidate was built: call "
                    "load_inline at module level, with sources that do not depend on the run"
                )
            path = str(folder / entry["library"])
            loader = importlib.machinery.ExtensionFileLoader(entry["name"], path)
            spec = importlib.util.spec_from_file_location(entry["name"], path, loader=loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            loaded[name] = module
        return loaded[name]

    install_module(find, find)


class Placeholder(types.ModuleType):
    """Stands for a module that is not built yet. Every attribute exists; calling one raises."""

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("__"):
            raise AttributeError(attribute)

        def not_built(*_args: object, **_kwargs: object) -> None:
            raise HarvestError(f"{attribute} was called while the sources were being collected")

        return not_built


class Recorder:
    """Collects the arguments of `load_inline` and `load`."""

    def __init__(self, model_text: str) -> None:
        self.model_text = model_text
        self.modules: dict[str, dict[str, object]] = {}

    def located(self, source: str) -> str:
        """The source under its line numbers in model_new.py, if that file contains it verbatim."""
        at = self.model_text.find(source) if source.strip() else -1
        if at < 0:
            return source
        line = self.model_text.count("\n", 0, at) + 1
        return f'#line {line} "model_new.py"\n{source}'

    def record(
        self,
        name: object,
        cpp: list[str],
        cuda: list[str],
        functions: dict[str, str] | None,
        units: list[dict[str, str]],
        flags: Iterable[str],
    ) -> object:
        if sum(len(s) for s in cpp + cuda) > MAX_SOURCE_BYTES:
            raise HarvestError("the inline sources are larger than 4 MiB")
        if len(self.modules) >= MAX_MODULES:
            raise HarvestError(f"more than {MAX_MODULES} inline modules")
        identity = key(cpp, cuda, functions)
        self.modules[identity] = {
            "key": identity,
            "name": module_name(name),
            "units": units,
            "dropped_flags": [f for f in flags if not HARMLESS.fullmatch(f)],
        }
        return Placeholder(module_name(name))

    def load_inline(
        self,
        name: object,
        cpp_sources: object = None,
        cuda_sources: object = None,
        functions: object = None,
        extra_cflags: object = None,
        extra_cuda_cflags: object = None,
        extra_ldflags: object = None,
        *_args: object,
        **_kwargs: object,
    ) -> object:
        cpp, cuda = texts(cpp_sources), texts(cuda_sources)
        docs = function_docs(functions)
        flags = texts(extra_cflags) + texts(extra_cuda_cflags) + texts(extra_ldflags)
        host = ["#include <torch/extension.h>", *map(self.located, cpp)]
        if docs is not None:
            host.append('#line 1 "bindings generated by load_inline"')
            host.append("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {")
            for function, doc in docs.items():
                if not re.fullmatch(r"[A-Za-z_]\w*", function, flags=re.ASCII):
                    raise HarvestError(f"{function!r} is not a function name")
                bound = f"torch::wrap_pybind_function({function})"
                host.append(f'm.def("{function}", {bound}, {json.dumps(doc)});')
            host.append("}")
        units = [{"file": "main.cpp", "text": "\n".join(host) + "\n"}]
        if cuda:
            head = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"]
            text = "\n".join(head + list(map(self.located, cuda))) + "\n"
            units.append({"file": "cuda.cu", "text": text})
        return self.record(name, cpp, cuda, docs, units, flags)

    def load(
        self,
        name: object,
        sources: object,
        extra_cflags: object = None,
        extra_cuda_cflags: object = None,
        extra_ldflags: object = None,
        *_args: object,
        **_kwargs: object,
    ) -> object:
        flags = texts(extra_cflags) + texts(extra_cuda_cflags) + texts(extra_ldflags)
        units = []
        for index, path in enumerate(texts(sources)):
            ending = ".cu" if path.endswith(".cu") else ".cpp"
            shown = re.sub(r"[^\w./-]", "_", path, flags=re.ASCII)
            text = f'#line 1 "{shown}"\n{Path(path).read_text()}'
            units.append({"file": f"unit{index}{ending}", "text": text})
        cpp, cuda = read_sources(sources)
        return self.record(name, cpp, cuda, None, units, flags)


def run(path: Path, name: str) -> types.ModuleType:
    """Executes a Python file as a module of that name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def init_arguments(reference: Path | None, candidate: types.ModuleType) -> list[object]:
    """Arguments for constructing `ModelNew`: the reference's, or the candidate's own without a
    reference."""
    source = candidate
    if reference is not None:
        source = run(reference, "model")
    get = getattr(source, "get_init_inputs", None)
    return list(get()) if get is not None else []


def without_gpu(default: str) -> AbstractContextManager[Any]:
    """Redirects tensors for a GPU to `default`; `.cuda()` does nothing."""
    import torch
    from torch.overrides import TorchFunctionMode

    def placed(value: Any) -> Any:
        named = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
        return default if named else value

    class Elsewhere(TorchFunctionMode):
        def __torch_function__(
            self,
            func: Callable[..., Any],
            types: Any,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
                return args[0]
            given = {name: placed(value) for name, value in (kwargs or {}).items()}
            return func(*map(placed, args), **given)

    return Elsewhere()


def main(arguments: list[str]) -> int:
    """Runs the harvest and writes the result to OUT. Exits with 0 even if the candidate raised; OUT
    then names the problem."""
    folder, out = Path(arguments[0]), Path(arguments[1])
    reference = Path(arguments[2]) if len(arguments) > 2 else None
    import torch

    model = folder / "model_new.py"
    recorder = Recorder(model.read_text())
    install_module(recorder.load_inline, recorder.load)
    sys.path.insert(0, str(folder))
    problem = ""
    try:
        with without_gpu("cpu"):
            module = run(model, "model_new")
            given = [] if recorder.modules else init_arguments(reference, module)
        if not recorder.modules:
            with torch.device("meta"), without_gpu("meta"):
                module.ModelNew(*given)
    except BaseException as error:
        problem = f"{type(error).__name__}: {error}"[:2000]
    found = {"format": FORMAT, "modules": list(recorder.modules.values()), "problem": problem}
    out.write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
