"""Patches a model with its own regions as kernels, and unpatches it.

python patching.py MODEL_FILE
python patching.py CONFIG
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from warpwright_model.cover import Cover
from warpwright_model.kernels import maker
from warpwright_model.loading import InputSet, load_inputs, load_model
from warpwright_model.measure import leaves
from warpwright_model.observe import observe, run
from warpwright_model.patch import Patches


def main() -> None:
    path = sys.argv[1]
    of_file = path.endswith(".py")
    request = {"file": path, "function": "build"} if of_file else {"hf": path}
    torch.manual_seed(0)
    model = load_model(request, None, "cpu")
    sets = load_inputs(path if of_file else None, model, "cpu", None, 0)
    cover = Cover(observe(model, sets, "cpu"), path, 64, 0.0, False)
    cover.descend("")
    own = [leaves(run(model, given)) for given in sets]
    every = []
    for region in cover.all_regions():
        source = region.source.replace("class Model(", "class ModelNew(")
        described = region.described()
        kernels = {"source": source, "artifact": None}
        every.append(Patches(model, described, maker(described, kernels, "cpu")))

    def compare(given: InputSet, wanted: list[torch.Tensor]) -> None:
        for mine, theirs in zip(leaves(run(model, given)), wanted, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)

    for patches in every:
        patches.apply()
    for given, wanted in zip(sets, own, strict=True):
        compare(given, wanted)
    counts = [patches.counts() for patches in every]
    assert all(replaced > 0 and fell_back == 0 for replaced, fell_back in counts), counts
    # A shape that no region saw takes the model's own way, which is counted.
    other: Any = sets[0].kwargs.get("input_ids", sets[0].args[0] if sets[0].args else None)
    if other is not None:
        shorter = InputSet("shorter", {**sets[0].kwargs, "input_ids": other[:, :-1]})
        if sets[0].args:
            shorter = InputSet("shorter", [other[:, :-1]])
        patched = leaves(run(model, shorter))
        for patches in every:
            patches.undo()
        compare(shorter, patched)
        assert all(patches.counts()[1] > 0 for patches in every)
    for patches in every:
        patches.undo()
    assert all("forward" not in vars(module) for module in model.modules())
    print(len(every))


main()
