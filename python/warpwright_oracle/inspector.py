"""The inspector: one call of a candidate under a tool, in a process of its own.

Unlike the runner it has no arena. Every tensor is an allocation of its own, so that a sanitizer
sees the bounds of each. Inputs and weights come in a file; the report goes into another. The judge
trusts neither this report nor the tool's files more than the candidate.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.modules["numpy"] = None  # type: ignore[assignment]  # torch without a way out through numpy
import torch  # noqa: E402

del sys.modules["numpy"]

from . import extension, harvest, hostdevice, precision, rules  # noqa: E402
from .channel import Refusal, describe  # noqa: E402
from .reference import in_mode, load_module, placed, prepare  # noqa: E402
from .steps import as_called  # noqa: E402
from .tensors import DTYPES, Place, unflatten  # noqa: E402

WARM_CALLS = 2
MOST_CALLS = 20
MEASURED_SECONDS = 0.3


class Inspector:
    """One candidate with one set of inputs."""

    def __init__(self, device: str, given: Path) -> None:
        self.device = device
        self.cuda = device.startswith("cuda")
        self.given: dict[str, Any] = json.loads((given / "given.json").read_text())
        data = given / "tensors.bin"
        size = data.stat().st_size
        self.data = torch.from_file(str(data), shared=False, size=size, dtype=torch.uint8)

    def view(self, at: Place) -> torch.Tensor:
        """A tensor with memory of its own, exactly as large as its span."""
        dtype = DTYPES[at["dtype"]]
        if at["bytes"] == 0:
            return torch.empty(at["shape"], dtype=dtype, device=self.device)
        flat = self.data[at["offset"] : at["offset"] + at["bytes"]]
        own = flat.to(self.device) if self.cuda else flat.clone()
        return own.view(dtype).as_strided(at["shape"], at["strides"])

    def values(self, value: dict[str, Any]) -> Any:
        return unflatten(value["tree"], [self.view(at) for at in value["tensors"]])

    def load(self) -> None:
        """Loads the artifact, ``model_new.py`` and the weights, as the runner does."""
        given = self.given
        precision.apply(given["profile"])
        if given["artifact"] is not None:
            artifact = Path(given["artifact"])
            extension.install(artifact, self.device)
            if (artifact / "inline.json").exists():
                harvest.install(artifact)
        if self.device == "cpu":
            hostdevice.map_cuda_to_host(given["source"], pretend=True)
        module = load_module(given["source"], "model_new")
        if not hasattr(module, "ModelNew"):
            raise Refusal("no_model_new", "model_new.py defines no class ModelNew")
        init = self.values(given["init"])
        model = module.ModelNew(**init) if isinstance(init, dict) else module.ModelNew(*init)
        model = placed(model, self.device, given["mode"])
        state = [self.view(at) for at in given["state"]["tensors"]]
        try:
            named = dict(zip(given["state"]["names"], state, strict=True))
            model.load_state_dict(named, strict=True)
        except RuntimeError as error:
            raise Refusal("state_dict", str(error)) from error
        model = in_mode(model, given["mode"])
        prepare(model)
        self.wait()
        self.model = as_called(model, given["mode"])
        self.inputs = self.values(given["inputs"])

    def warm(self) -> None:
        """The first call, as in the runner. It may use operators, which are forbidden
        afterwards."""
        self.call()
        rules.forbid_operators(rules.computing(self.device))

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def call(self, times: int = 1) -> float:
        """Calls and waits; returns seconds."""
        begun = time.monotonic()
        with torch.no_grad():
            for _ in range(times):
                self.model(*self.inputs)
        self.wait()
        return time.monotonic() - begun

    def kernels(self, trace: Path) -> dict[str, Any]:
        """Kernel times over a few calls: from CUPTI, or from the launcher of the cpu device."""
        self.call(WARM_CALLS)
        calls = max(1, min(MOST_CALLS, int(MEASURED_SECONDS / max(self.call(), 1e-6))))
        if not self.cuda:
            begun = time.monotonic_ns()
            seconds = self.call(calls)
            rows = host_launches(self.given["artifact"])
            rows = [row for row in rows if row["ts"] >= begun / 1e3]
            trace.write_text(json.dumps({"traceEvents": rows}))
            return {"calls": calls, "seconds": seconds}
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities, acc_events=True) as profile:
            seconds = self.call(calls)
        # The exporter renames a file of its own, which only a private folder permits.
        private = Path(tempfile.mkdtemp()) / "trace.json"
        profile.export_chrome_trace(str(private))
        trace.write_bytes(private.read_bytes())
        return {"calls": calls, "seconds": seconds}

    def counters(self, _: Path) -> dict[str, Any]:
        """One call between the markers that the profiler waits for."""
        torch.cuda.profiler.start()
        seconds = self.call()
        torch.cuda.profiler.stop()
        return {"calls": 1, "seconds": seconds}

    def sanitize(self, _: Path) -> dict[str, Any]:
        """One more call after the first."""
        return {"calls": 1, "seconds": self.call()}


class Launch(ctypes.Structure):
    """``hostcuda::TracedLaunch``."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("start_ns", ctypes.c_longlong),
        ("duration_ns", ctypes.c_longlong),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_ulonglong),
    ]


def host_launches(artifact: str | None) -> list[dict[str, Any]]:
    """The launches that an artifact's libraries recorded, as a Chrome trace."""
    rows: list[dict[str, Any]] = []
    for path in sorted(Path(artifact).rglob("*.so")) if artifact else []:
        library = ctypes.CDLL(str(path))
        if not hasattr(library, "hostcuda_trace"):
            continue
        library.hostcuda_trace.restype = ctypes.POINTER(Launch)
        count = ctypes.c_size_t()
        launches = library.hostcuda_trace(ctypes.byref(count))
        for launch in launches[: count.value]:
            rows.append(
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": launch.name.decode(errors="replace"),
                    "ts": launch.start_ns / 1e3,
                    "dur": launch.duration_ns / 1e3,
                    "args": {
                        "grid": list(launch.grid),
                        "block": list(launch.block),
                        "shared memory": launch.shared_bytes,
                    },
                }
            )
    return rows


def main() -> None:
    """Entry point: ``python -m warpwright_oracle.inspector``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--given", required=True, type=Path)
    parser.add_argument("--report", required=True, type=Path)
    parser.add_argument("--trace", required=True, type=Path)
    parser.add_argument("--what", required=True, choices=("kernels", "counters", "sanitize"))
    given = parser.parse_args()
    stage = "start"
    # Until here only our own code has run. If the report stays unfinished, the candidate ended the
    # process.
    given.report.write_text(json.dumps({"done": False}))
    try:
        inspector = Inspector(given.device, given.given)
        stage = "load"
        inspector.load()
        stage = "forward"
        inspector.warm()
        report = getattr(inspector, given.what)(given.trace)
    except Refusal as refusal:
        told = {"kind": refusal.kind, "message": str(refusal), "trace": ""}
        report = {"error": told, "during": stage}
    except BaseException as error:  # report every error to the judge
        report = {"error": describe(error), "during": stage}
    given.report.write_text(json.dumps({"done": True, **report}))


if __name__ == "__main__":
    main()
