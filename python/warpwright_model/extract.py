"""Divides a model into tasks. Reads a request, which is JSON, and writes an answer, on the standard
streams."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict
from typing import Any

import torch

from .cover import Cover
from .failure import Failed, told
from .loading import load_inputs, load_model
from .observe import observe, run
from .trace import graph_breaks

MOST_BREAKS = 50


def title(request: dict[str, Any]) -> str:
    """What the user calls the model."""
    source = request["model"]
    text = source.get("hf") or f"{source.get('file') or source.get('module')}:{source['function']}"
    return re.sub(r"[^0-9A-Za-z_.:-]", "_", text.rsplit("/", 1)[-1])


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The regions of the model, and their tasks."""
    device, dtype = request["device"], request["dtype"]
    torch.manual_seed(request["seed"])
    model = load_model(request["model"], dtype, device)
    sets = load_inputs(request["inputs"], model, device, dtype, request["seed"])
    for given in sets:
        try:
            run(model, given)  # the first call is slow, and the one that fails if inputs do not fit
        except Exception as error:
            raise Failed("forward", f"the model raised on {given.name}: {told(error)}") from error
    found = observe(model, sets, device)
    limit, least = request["max_operators"], request["min_share"]
    cover = Cover(found, title(request), limit, least, request["separate"])
    if "" not in found.nodes:
        raise Failed("forward", "the model's own `forward` was not called")
    cover.descend("")
    regions = cover.all_regions()
    if not regions:
        reasons = "; ".join(f"{item['class']}: {item['reason']}" for item in cover.left_out()[:5])
        raise Failed("no_regions", f"no module can become a task: {reasons}")
    breaks = graph_breaks(model, sets[0].args, sets[0].kwargs)
    return {
        "input_sets": [
            {"name": name, "milliseconds": seconds * 1e3} for name, seconds in found.seconds.items()
        ],
        "regions": [region.described() for region in regions],
        "sources": {region.name: region.source for region in regions},
        "left_out": cover.left_out(),
        "graph_breaks": [asdict(one) for one in breaks[:MOST_BREAKS]],
        "torch": torch.__version__,
    }


def main() -> None:
    """Reads the request and writes the answer, also where the request fails. What the model prints
    goes to the standard error."""
    request = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        found = answer(request)
    except Failed as error:
        found = {"failed": {"kind": error.kind, "message": str(error)}}
    with answers:
        json.dump(found, answers)


if __name__ == "__main__":
    main()
