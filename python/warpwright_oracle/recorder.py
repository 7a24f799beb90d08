"""The recorder: the jailed process without a GPU in which a candidate's host code runs.

What it would launch becomes a recording. Each process records one candidate once; the judge merges
two recordings whose memory lies elsewhere. The judge trusts nothing that this process says.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.modules["numpy"] = None  # type: ignore[assignment]  # torch without a way out through numpy
import torch  # noqa: E402

del sys.modules["numpy"]

from . import extension, harvest, hostdevice, precision  # noqa: E402
from .arena import Memory  # noqa: E402
from .arguments import invoke  # noqa: E402
from .channel import Channel, Refusal, arguments, serve  # noqa: E402
from .host_recording import HostMode, HostRuntime  # noqa: E402
from .reference import in_mode, load_module, placed, prepare  # noqa: E402
from .shadow import DeviceMode  # noqa: E402
from .steps import as_called  # noqa: E402
from .stub_runtime import StubRuntime  # noqa: E402
from .tensors import DTYPES, NAMES, Place, flatten, unflatten  # noqa: E402

Call = Callable[..., Any]

MOST_OPEN_BYTES = 1 << 30
"""Size of inputs up to which memory stays open for the call that warms up: what it allocates takes
host memory if torch computes with it."""


class NumberedChannel(Channel):
    """A channel that keeps a request's ``nonce``, which the library's own answer repeats."""

    nonce: Any = None

    def receive(self) -> dict[str, Any] | None:
        """As ``Channel.receive``."""
        request = super().receive()
        self.nonce = None if request is None else request.get("nonce")
        return request


class Recorder:
    """One recording."""

    def __init__(self, device: str, library: str, channel: NumberedChannel) -> None:
        self.device = torch.device(device)
        self.channel = channel
        self.zeroed: list[int] = []
        self.runtime: StubRuntime
        self.mode: DeviceMode
        if self.device.type == "cpu":
            self.runtime = HostRuntime(library)
            self.mode = HostMode(self.runtime)
        else:
            self.runtime = StubRuntime(library)
            self.mode = DeviceMode(self.runtime)

    def record(self, request: dict[str, Any]) -> dict[str, Any]:
        """Loads a candidate, prepares it, and calls it twice."""
        base = self._begin(request)
        with self._phase("init"):
            make = self._load(request)
            init, given = self._init(request["init"])
            model = make(**init) if isinstance(init, dict) else make(*init)
            weights = self._weigh(placed(model, self.device, request["mode"]), request)
            model = in_mode(model, request["mode"])
            call = as_called(model, request["mode"])
        with self._phase("prepare"):
            started = time.perf_counter()
            prepare(model)
            prepare_ms = (time.perf_counter() - started) * 1e3
            if request["warm_up"]:
                self._warm_up(call, request["inputs"])
        inputs, outputs, held = self._call_twice(call, request["inputs"])
        self.runtime.enter_phase("idle")
        recording = {
            **self.runtime.written(),
            "refused": None,
            "weights": weights,
            "init": [tensor.data_ptr() for tensor in given],
            "inputs": inputs,
            "zeroed": self.zeroed,
            "outputs": outputs,
        }
        del held  # the call's memory is alive in the recording
        return {"recording": recording, "base": base, "prepare_ms": prepare_ms}

    def _begin(self, request: dict[str, Any]) -> int:
        """Makes torch believe in the judge's device and memory. Returns the memory's address."""
        descriptor = self.channel.descriptor()
        places = [*request["tensors"], *request["init"]["tensors"]]
        given = max((at["offset"] + at["bytes"] for at in places), default=0)
        size = request["memory_bytes"]
        base = self.runtime.map_memory(descriptor, size, given, request["seed"])
        self.memory = Memory(self.device, base, size)
        nonce = "" if self.channel.nonce is None else f',"nonce":{json.dumps(self.channel.nonce)}'
        end = f',"base":{base},"prepare_ms":0.0{nonce}}}'
        self.runtime.begin(self.channel.socket.fileno(), end)
        if self.device.type == "cuda":
            self._begin_cuda(request)
        self.runtime.install_allocator()
        if self.device.type == "cuda":
            torch.cuda.init()
            # Resolves what torch may need of the driver.
            torch._C._cuda_hasPrimaryContext(0)
        precision.apply(request["profile"])
        return base

    def _begin_cuda(self, request: dict[str, Any]) -> None:
        self.runtime.set_device(request["device"])
        self.runtime.set_kernels(request["artifact"] or "", request["kernels"])
        # Two recordings must compute the same contents. (On the cpu device launches depend on the
        # number of threads.)
        torch.set_num_threads(1)

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """A phase in which the candidate's code runs."""
        self.mode.phase = name
        self.runtime.enter_phase(name)
        with self.mode:
            yield

    def _load(self, request: dict[str, Any]) -> Any:
        if isinstance(self.runtime, HostRuntime):
            hostdevice.map_cuda_to_host(request["source"], pretend=True)
        if request["artifact"] is not None:
            artifact = Path(request["artifact"])
            if isinstance(self.runtime, HostRuntime):
                self.runtime.watch(artifact)
            extension.install(artifact, str(self.device))
            if (artifact / "inline.json").exists():
                harvest.install(artifact)
        module = load_module(request["source"], "model_new")
        if not hasattr(module, "ModelNew"):
            raise Refusal("no_model_new", "model_new.py defines no class ModelNew")
        return module.ModelNew

    def _init(self, value: dict[str, Any]) -> tuple[Any, list[torch.Tensor]]:
        """The constructor's arguments, and the tensors among them. These are copied: the distances
        between the judge's places are the same in every recording."""
        tensors = [self.memory.view(at).clone() for at in value["tensors"]]
        return unflatten(value["tree"], tensors), tensors

    def _weigh(self, model: torch.nn.Module, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Loads the weights; returns where they lie in the model."""
        views = [self.memory.view(at) for at in request["tensors"]]
        names = request["names"]
        try:
            model.load_state_dict(dict(zip(names, views, strict=True)), strict=True)
        except RuntimeError as error:
            raise Refusal("state_dict", str(error)) from error
        state = model.state_dict()
        return [{"name": name, "address": state[name].data_ptr()} for name in names]

    def _warm_up(self, call: Call, value: dict[str, Any]) -> None:
        """Calls it on zeros. It is recorded as the end of ``prepare()``: what the first call sets
        up once, such as memory, a table or a graph, is then there in the calls that are compared.
        Until the call launches kernels, torch computes on the host."""
        self.mode.phase = "warm-up"
        if sum(at["bytes"] for at in value["tensors"]) > MOST_OPEN_BYTES:
            self.runtime.close_memory()
        tensors = [self._input(at) for at in value["tensors"]]
        storages = [tensor.untyped_storage() for tensor in tensors]
        if self.runtime.memory_open():
            # New memory is zero, and costs nothing until it is touched.
            self.zeroed = [storage.data_ptr() for storage in storages if storage.nbytes()]
        else:
            for storage in storages:
                whole = torch.empty(0, dtype=torch.uint8, device=self.device)
                self.runtime.fill(whole.set_(storage), 0, 1)
        with torch.no_grad():
            invoke(call, unflatten(value["tree"], tensors))

    def _call_twice(
        self, call: Call, value: dict[str, Any]
    ) -> tuple[list[list[int]], dict[str, Any], Any]:
        """The addresses of both calls' inputs, what the second call returned, as data, and what
        holds its memory."""
        addresses: list[list[int]] = []
        outputs: dict[str, Any] = {}
        held: tuple[Any, ...] = ()
        with torch.no_grad():
            for phase in ("first", "second"):
                held = ()  # the first call's
                self.runtime.enter_phase("inputs")
                tensors = [self._input(at) for at in value["tensors"]]
                addresses.append([tensor.data_ptr() for tensor in tensors])
                given = unflatten(value["tree"], tensors)
                with self._phase(phase):
                    result = invoke(call, given)
                outputs = self._outputs(result)
                held = (result, given, tensors)
                del result, given, tensors
        return addresses, outputs, held

    def _input(self, at: Place) -> torch.Tensor:
        """Memory for an input, which never has values."""
        return torch.empty_strided(
            at["shape"], at["strides"], dtype=DTYPES[at["dtype"]], device=self.device
        )

    def _outputs(self, result: Any) -> dict[str, Any]:
        """What a call returned, as data."""
        tensors: list[torch.Tensor] = []
        tree = flatten(result, tensors)
        for tensor in tensors:
            if tensor.device.type != self.device.type or tensor.layout != torch.strided:
                self.runtime.refuse("returns a tensor that is not a dense one on the device")
            if tensor.is_conj() or tensor.is_neg():
                self.runtime.refuse("returns a lazily conjugated or negated tensor")
        return {"tree": tree, "tensors": [_output(tensor) for tensor in tensors]}


def _output(tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "address": tensor.data_ptr(),
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
        "dtype": NAMES.get(tensor.dtype, str(tensor.dtype)),
    }


def main() -> None:
    """Entry point: ``python -m warpwright_oracle.recorder``."""
    given = arguments().parse_args()
    channel = NumberedChannel(given.channel)
    recorder = Recorder(given.device, given.library, channel)
    serve(channel, {"record": recorder.record})


if __name__ == "__main__":
    main()
