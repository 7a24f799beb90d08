"""Modes of the oracle see every operator without importing torch's compiler, and are not compiled
where a reference has imported it."""

from __future__ import annotations

import importlib
import sys

import torch
from warpwright_oracle.computes import Computes
from warpwright_oracle.graph import Recorder
from warpwright_oracle.rounding import Reordered, Rounded
from warpwright_oracle.sizes import Allocated
from warpwright_oracle.widening import Widening

MODES = {
    "allocated": Allocated,
    "computes": Computes,
    "recorder": Recorder,
    "reordered": Reordered,
    "rounded": lambda: Rounded({torch.float32: 10}, products=True),
    "widening": Widening,
}


def forward(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x @ x.t()).sum(-1)


def operators() -> list[str]:
    """The operators of a forward, in order."""
    with Recorder() as recorder, torch.no_grad():
        forward(torch.ones(4, 4))
    return [node["op"] for node in recorder.nodes if node["op"] != "constant"]


def main() -> None:
    for name, make in MODES.items():
        with make(), torch.no_grad():
            forward(torch.ones(4, 4))
        assert "torch._dynamo" not in sys.modules, name
    before = operators()
    importlib.import_module("torch._dynamo")
    after = operators()
    assert before == after and len(before) >= 4, (before, after)
    # A reference that compiles itself meets a mode that the compiler leaves alone.
    compiled = torch.compile(forward, backend="eager")
    with Computes() as computes, torch.no_grad():
        result = compiled(torch.ones(4, 4))
    assert computes.found
    assert torch.equal(result, forward(torch.ones(4, 4)))
    print(f"modes {len(MODES)} operators {len(before)}")


if __name__ == "__main__":
    main()
