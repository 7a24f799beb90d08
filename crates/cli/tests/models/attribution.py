"""Checks what is attributed to modules, of events such as torch's profiler gives, and the copies
of inputs that CUDA graphs read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from warpwright_model.graphs import overlaps, own, rolled
from warpwright_model.observe import MARK, attributed

CPU, CUDA = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA


@dataclass
class Event:
    """What `attributed` reads of a kineto event."""

    of: str
    device: Any
    begins: int
    takes: int
    correlation: int = 0

    def name(self) -> str:
        return self.of

    def device_type(self) -> Any:
        return self.device

    def start_ns(self) -> int:
        return self.begins

    def duration_ns(self) -> int:
        return self.takes

    def correlation_id(self) -> int:
        return self.correlation


def main() -> None:
    events = [
        Event(MARK, CPU, 0, 100),
        Event(MARK + "a", CPU, 10, 20),
        Event(MARK + "b", CPU, 40, 20),
        # An operator whose number is that of a launch.
        Event("aten::add", CPU, 11, 5, 2),
        Event("cudaLaunchKernel", CPU, 12, 2, 1),
        Event("cuLaunchKernel", CPU, 45, 2, 2),
        Event("cudaMemsetAsync", CPU, 80, 2, 3),
        # They run later than their modules' calls, and one after the pass.
        Event("kernel", CUDA, 50, 1000, 1),
        Event("extension", CUDA, 1060, 500, 2),
        Event("Memset", CUDA, 1600, 7, 3),
        Event("stray", CUDA, 1700, 9, 4),
        Event(MARK + "a", CUDA, 50, 1000, 1),
    ]
    found = {path: round(seconds * 1e9) for path, seconds in attributed(events).items()}
    assert found == {"": 1507, "a": 1000, "b": 500}, found
    assert attributed([]) == {}

    plain = torch.arange(12.0).view(3, 4)
    for given in (plain, plain.t(), plain[:, 1:3]):
        copy = own(given)
        assert copy.stride() == given.stride() and torch.equal(copy, given)
        assert copy.data_ptr() != given.data_ptr()
        other = rolled(given)
        assert other.stride() == given.stride() and not torch.equal(other, given)
        assert torch.equal(other.flatten().sort().values, given.flatten().sort().values)
    wide = plain[:, :1].expand(3, 4)
    assert overlaps(wide) and own(wide) is wide and not overlaps(plain)
    assert own("text") == "text"


main()
