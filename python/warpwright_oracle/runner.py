"""The runner: the disposable process in which candidate code executes.

It holds no reference, no expected output and no seed. The judge trusts its messages no more than
the candidate, and reads memory itself. It starts before its candidate is known, and waits. The
judge freezes it except while it loads, while it prepares a window whose inputs do not exist yet,
and between "go" and the answer.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

sys.modules["numpy"] = None  # type: ignore[assignment]  # torch without a way out through numpy
import torch  # noqa: E402

del sys.modules["numpy"]

from . import extension, harvest, hostdevice, precision, rules  # noqa: E402
from .arena import Arena, initialise  # noqa: E402
from .arguments import invoke  # noqa: E402
from .channel import Channel, Refusal, arguments, serve  # noqa: E402
from .player import Player  # noqa: E402
from .reference import in_mode, load_module, placed, prepare  # noqa: E402
from .steps import as_called  # noqa: E402
from .tensors import unflatten  # noqa: E402

QUEUES = "2"
"""Hardware queues of a candidate's context (default: eight). With two, creating and destroying a
context take half the time. Two streams still run in parallel, and so do all branches of a graph."""


class Runner(Player):
    """One candidate."""

    def __init__(
        self, device: str, library: str, channel: Channel, arena: Arena | None, apart_at: int
    ) -> None:
        super().__init__(arena, device.startswith("cuda"))
        self.apart_at = apart_at
        self.device = device
        self.library = library
        self.channel = channel
        self.models: dict[str, torch.nn.Module] = {}
        # Bound before any candidate could replace it.
        self.forbid = rules.forbid_operators
        self.forbidden = rules.computing(device)

    def ping(self, _: dict[str, Any]) -> dict[str, Any]:
        """Confirms that it waits and, on a GPU, that the context still works."""
        if self.arena is not None:
            self.arena.check()
        return {}

    def adopt(self, request: dict[str, Any]) -> dict[str, Any]:
        """Maps the candidate's memory, whose descriptor comes with the request. Only on the cpu
        device, where the task determines the size."""
        descriptor = self.channel.descriptor()
        size, populate = request["arena_bytes"], request["populate"]
        self.arena = Arena(self.device, self.library).reach(descriptor, size, populate=populate)
        os.close(descriptor)
        self.arena.install()
        return {}

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Loads the artifact and ``model_new.py``."""
        self._zone(request)
        self.pulse = torch.empty(1, device=self.device) if self.cuda else None
        precision.apply(request["profile"])
        if request["artifact"] is not None:
            artifact = Path(request["artifact"])
            extension.install(artifact, self.device)
            if (artifact / "inline.json").exists():
                harvest.install(artifact)
        source = request["source"]
        if self.device == "cpu":
            hostdevice.map_cuda_to_host(source, pretend=True)
        self.module = load_module(source, "model_new")
        if not hasattr(self.module, "ModelNew"):
            raise Refusal("no_model_new", "model_new.py defines no class ModelNew")
        self.init = self._values(request["init"])
        self.mode = request["mode"]
        return {}

    def _values(self, value: dict[str, Any]) -> Any:
        assert self.arena is not None
        return unflatten(value["tree"], [self.arena.view(at) for at in value["tensors"]])

    def state(self, request: dict[str, Any]) -> dict[str, Any]:
        """Makes a new ``ModelNew`` with the given weights (strict loading), then calls its
        ``prepare()``."""
        assert self.arena is not None
        make = self.module.ModelNew
        model = make(**self.init) if isinstance(self.init, dict) else make(*self.init)
        model = placed(model, self.device, self.mode)
        views = [self.arena.view(at) for at in request["tensors"]]
        try:
            model.load_state_dict(dict(zip(request["names"], views, strict=True)), strict=True)
        except RuntimeError as error:
            raise Refusal("state_dict", str(error)) from error
        model = in_mode(model, self.mode)
        if self.cuda:  # the judge will overwrite the source of these weights
            torch.cuda.synchronize()
        started = time.perf_counter()
        prepare(model)
        if self.cuda:
            torch.cuda.synchronize()
        self.models[request["variant"]] = model
        self.calls[request["variant"]] = as_called(model, self.mode)
        return {"prepare_ms": (time.perf_counter() - started) * 1e3}

    def warm(self, request: dict[str, Any]) -> dict[str, Any]:
        """Calls a variant once before operators are forbidden, and discards the result. Tables,
        packed weights and workspaces that it creates lazily then lie in memory that the judge does
        not overwrite."""
        self._zone(request)
        given = self._values(request["inputs"])
        with torch.no_grad():
            invoke(self.calls[request["variant"]], given)
        if self.cuda:  # the judge will overwrite the inputs
            torch.cuda.synchronize()
        return {}

    def lock(self, _: dict[str, Any]) -> dict[str, Any]:
        """Forbids operators that compute, from now on."""
        return {"operators": self.forbid(self.forbidden)}

    def stage(self, request: dict[str, Any]) -> dict[str, Any]:
        """Releases the last window and makes views of the places where the inputs of the next calls
        will be stored (they do not exist yet). Results of these calls are allocated in ``zone``."""
        assert self.arena is not None
        self.results, self.sets = [], []
        if self.cuda:
            self.arena.close_apart()
        self.sets = [self._values(given) for given in request["sets"]]
        self._zone(request)
        return {}

    def go(self, request: dict[str, Any]) -> dict[str, Any]:
        """As ``Player.go``. ``sets`` replaces staged sets whose form differs, by position. On a
        GPU, the memory of the inputs comes with the request."""
        assert self.arena is not None
        if self.cuda:
            descriptor = self.channel.descriptor()
            self.arena.open_apart(descriptor, self.apart_at, request["apart_bytes"])
            os.close(descriptor)
        for index, given in request["sets"]:
            self.sets[index] = self._values(given)
        return super().go(request)

    def _zone(self, request: dict[str, Any]) -> None:
        assert self.arena is not None
        self.arena.zone(request["zone"]["offset"], request["zone"]["bytes"])

    def drop(self, request: dict[str, Any]) -> dict[str, Any]:
        """Releases a variant."""
        self.models.pop(request["variant"], None)
        self.calls.pop(request["variant"], None)
        return {}


def touch(device: str) -> None:
    """Performs the one-time work of a GPU process for every candidate: torch initialises itself,
    and the driver loads a kernel."""
    ones = torch.ones(8).to(device)
    ones.view(2, 4).t().contiguous().copy_(ones.view(4, 2))
    torch.cuda.synchronize()


def main() -> None:
    """Entry point: ``python -m warpwright_oracle.runner``."""
    parser = arguments()
    parser.add_argument("--arena", type=int)
    parser.add_argument("--arena-bytes", type=int)
    parser.add_argument("--start-bytes", type=int)
    parser.add_argument("--apart-at", type=int, default=0)
    parser.add_argument("--apart-bytes", type=int, default=0)
    given = parser.parse_args()
    channel = Channel(given.channel)
    arena = None
    if given.arena is not None:  # on a GPU: create the context and map the memory
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = QUEUES
        initialise()
        # Do the work that needs no context before other processes have to wait.
        arena = Arena(given.device, given.library)
        arena.install()
        torch.cuda.init()
        with channel.starting():
            size = given.arena_bytes
            room = given.apart_at + given.apart_bytes
            arena.reach(given.arena, size, populate=True, room=room)
            # A running candidate may use the rest of the memory.
            arena.zone(size - given.start_bytes, given.start_bytes)
            touch(given.device)
    runner = Runner(given.device, given.library, channel, arena, given.apart_at)
    names = [
        "ping",
        "adopt",
        "pin",
        "load",
        "state",
        "warm",
        "lock",
        "stage",
        "turn",
        "go",
        "drop",
    ]
    serve(channel, {name: getattr(runner, name) for name in names})


if __name__ == "__main__":
    main()
