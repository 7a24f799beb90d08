"""An oracle in the process of a test."""

from __future__ import annotations

import ctypes

import torch
from warpwright_oracle.arena import ALIGN, Memory
from warpwright_oracle.oracle import Oracle

SIZE = 1 << 23


class Room(Memory):
    """Memory of this process in place of an arena."""

    def __init__(self) -> None:
        self.buffer = ctypes.create_string_buffer(SIZE + ALIGN)
        base = -(-ctypes.addressof(self.buffer) // ALIGN) * ALIGN
        super().__init__(torch.device("cpu"), base, SIZE)


def source(result: str, inputs: str) -> str:
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        f"class Model(nn.Module):\n    def forward(self, x):\n        return {result}\n"
        f"def get_inputs():\n    return [{inputs}]\n"
    )


def opened(result: str, inputs: str) -> Oracle:
    """Of a task that makes this of one tensor ``x``."""
    oracle = Oracle("cpu", "", None)  # type: ignore[arg-type]  # nobody is spoken to
    oracle.arena = Room()  # type: ignore[assignment]
    oracle.load({"source": source(result, inputs), "profile": "strict", "mode": "eval"})
    oracle.open({"device_bytes": None, "seed": 1})
    return oracle
