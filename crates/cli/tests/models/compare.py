"""Compares the tasks of a divided model with the model's modules, on the inputs of the model.

python compare.py MODEL_FILE REGIONS_FOLDER
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import torch


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested value, each once, in the order of the program's numbers."""
    found: dict[int, torch.Tensor] = {}

    def take(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found.setdefault(id(value), value)
        elif isinstance(value, (list, tuple)):
            for item in value:
                take(item)
        elif isinstance(value, dict):
            for item in value.values():
                take(item)

    take(value)
    return list(found.values())


def main() -> None:
    user, folder = loaded(Path(sys.argv[1])), Path(sys.argv[2])
    model = user.build().eval()
    regions = json.loads((folder / "regions.json").read_text())["regions"]
    compared = 0
    sets = user.get_workloads() if hasattr(user, "get_workloads") else [{"arguments": {}}]
    for region in (region for region in regions if region["selected"]):
        task = loaded(folder / "tasks" / f"{region['task']}.py")
        for path in region["modules"]:
            module = model.get_submodule(path)
            copy = task.Model().eval()
            named = dict([*module.named_parameters(), *module.named_buffers()])
            copy.load_state_dict({w["name"]: named[w["path"]] for w in region["weights"]})

            def after(
                _: Any, args: Any, kwargs: Any, out: Any, copy: Any = copy, region: Any = region
            ) -> None:
                nonlocal compared
                given = tensors([list(args), kwargs])
                found = copy(*(given[item["index"]] for item in region["inputs"]))
                for mine, wanted in zip(tensors([found]), tensors([out]), strict=True):
                    torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-6)
                compared += 1

            handle = module.register_forward_hook(after, with_kwargs=True)
            for one in sets:
                given = user.get_inputs(**one["arguments"])
                with torch.no_grad():
                    model(**given) if isinstance(given, dict) else model(*given)
            handle.remove()
    print(compared)


main()
