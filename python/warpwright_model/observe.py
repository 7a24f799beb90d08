"""Runs the model on its input sets, and records each module's calls and times."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from .calls import Call
from .failure import Failed, Untraceable, told
from .loading import InputSet

PASSES = (3, 20)
"""Least and most timed passes of an input set; the shortest time of each module counts."""
SECONDS = 1.0
"""Time after which no further pass begins."""
MARK = "warpwright-module#"


class Node:
    """A module that the model calls."""

    def __init__(self, path: str, module: torch.nn.Module, parent: str | None) -> None:
        self.path = path
        self.module = module
        self.parent = parent
        self.children: list[str] = []
        self.calls: dict[str, list[Call]] = defaultdict(list)
        """One call of each key, by input set."""
        self.counts: dict[str, int] = defaultdict(int)
        """Number of calls, by input set."""
        self.seconds: dict[str, float] = {}
        """Time of all calls in one pass of the model, by input set."""
        self.refused: str | None = None
        """Why its calls cannot be recorded."""

    def signature(self) -> str:
        """Modules with equal signatures may be the same region."""
        module = self.module
        named = [*module.named_parameters(), *module.named_buffers()]
        tensors = [(name, tuple(t.shape), str(t.dtype), t.stride()) for name, t in named]
        inner = [(name, type(m).__qualname__) for name, m in module.named_modules()]
        calls = [(name, [call.key() for call in calls]) for name, calls in self.calls.items()]
        return repr((type(module).__module__, inner, tensors, calls))


class Observed:
    """The modules by path, in the order of their first call, and the times of the model."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.seconds: dict[str, float] = {}

    def share(self, path: str) -> float:
        """The share of the model's time that one module takes, as a mean over the input sets."""
        node = self.nodes[path]
        shares = [node.seconds.get(name, 0.0) / max(s, 1e-12) for name, s in self.seconds.items()]
        return sum(shares) / max(len(shares), 1)


def run(model: torch.nn.Module, given: InputSet) -> Any:
    """One forward pass."""
    with torch.no_grad():
        return model(*given.args, **given.kwargs)


def hooked(
    model: torch.nn.Module,
    before: Callable[[str, torch.nn.Module, tuple[Any, ...], dict[str, Any]], None],
    after: Callable[[str, torch.nn.Module, Any], None],
) -> list[Any]:
    """Has both called around each call of each module, with the first of its paths."""
    handles = []
    for path, module in model.named_modules():
        handles.append(
            module.register_forward_pre_hook(
                lambda m, args, kwargs, path=path: before(path, m, args, kwargs), with_kwargs=True
            )
        )
        handles.append(
            module.register_forward_hook(
                lambda m, args, out, path=path: after(path, m, out), always_call=True
            )
        )
    return handles


def record(model: torch.nn.Module, given: InputSet, found: Observed) -> None:
    """One pass that records the calls."""
    stack: list[str] = []

    def before(
        path: str, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        parent = stack[-1] if stack else None
        if path not in found.nodes:
            found.nodes[path] = Node(path, module, parent)
            if parent is not None:
                found.nodes[parent].children.append(path)
        node = found.nodes[path]
        stack.append(path)
        node.counts[given.name] += 1
        try:
            call = Call(module, args, kwargs)
        except Untraceable as error:
            node.refused = node.refused or str(error)
            return
        if all(call.key() != other.key() for other in node.calls[given.name]):
            node.calls[given.name].append(call)
            call.keep()

    def after(_path: str, _module: torch.nn.Module, _out: Any) -> None:
        stack.pop()

    handles = hooked(model, before, after)
    try:
        run(model, given)
    except Exception as error:
        raise Failed("forward", f"the model raised on {given.name}: {told(error)}") from error
    finally:
        for handle in handles:
            handle.remove()


def clocked(model: torch.nn.Module, given: InputSet) -> dict[str, float]:
    """Seconds of each module on the cpu device."""
    started: list[float] = []
    seconds: dict[str, float] = defaultdict(float)

    def before(*_: Any) -> None:
        started.append(time.perf_counter())

    def after(path: str, *_: Any) -> None:
        seconds[path] += time.perf_counter() - started.pop()

    handles = hooked(model, before, after)
    try:
        run(model, given)
    finally:
        for handle in handles:
            handle.remove()
    return seconds


def profiled(model: torch.nn.Module, given: InputSet) -> dict[str, float]:
    """Seconds that the GPU computes for each module, by torch's profiler."""
    open_marks: list[Any] = []

    def before(path: str, *_: Any) -> None:
        mark = torch.profiler.record_function(MARK + path)
        mark.__enter__()
        open_marks.append(mark)

    def after(*_: Any) -> None:
        open_marks.pop().__exit__(None, None, None)

    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    handles = hooked(model, before, after)
    try:
        with torch.profiler.profile(activities=kinds) as profile:
            run(model, given)
            torch.cuda.synchronize()
    finally:
        for handle in handles:
            handle.remove()
    results = profile.profiler.kineto_results if profile.profiler is not None else None
    return attributed(results.events() if results is not None else [])


def attributed(events: list[Any]) -> dict[str, float]:
    """Seconds of kernels, copies and fills by the marks around their launches. Torch counts for a
    mark only what its operators launch, and kernels of extensions are launched without one."""
    marks: list[tuple[int, int, str]] = []
    launches: dict[int, int] = {}
    on_gpu: list[tuple[int, int]] = []
    for event in events:
        name = event.name()
        if event.device_type() == torch.autograd.DeviceType.CPU:
            if name.startswith(MARK):
                ends = event.start_ns() + event.duration_ns()
                marks.append((event.start_ns(), ends, name.removeprefix(MARK)))
            elif name.startswith("cu"):
                launches[event.correlation_id()] = event.start_ns()
        elif not name.startswith(MARK):
            on_gpu.append((event.correlation_id(), event.duration_ns()))
    seconds: dict[str, float] = defaultdict(float)
    for correlation, duration in on_gpu:
        at = launches.get(correlation)
        for begins, ends, path in marks:
            if at is not None and begins <= at < ends:
                seconds[path] += duration * 1e-9
    return seconds


def evented(model: torch.nn.Module, given: InputSet) -> dict[str, float]:
    """Seconds between events before and after each module, gaps between kernels included. For
    machines where the profiler sees no kernels."""
    started: list[torch.cuda.Event] = []
    pairs: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    def now() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def before(*_: Any) -> None:
        started.append(now())

    def after(path: str, *_: Any) -> None:
        pairs.append((path, started.pop(), now()))

    handles = hooked(model, before, after)
    try:
        run(model, given)
    finally:
        for handle in handles:
            handle.remove()
    torch.cuda.synchronize()
    seconds: dict[str, float] = defaultdict(float)
    for path, first, last in pairs:
        seconds[path] += first.elapsed_time(last) * 1e-3
    return seconds


def timed(model: torch.nn.Module, given: InputSet, device: str) -> dict[str, float]:
    """Seconds of each module in one pass."""
    if device == "cpu":
        return clocked(model, given)
    seconds = profiled(model, given)
    return seconds if seconds.get("", 0.0) > 0 else evented(model, given)


def observe(model: torch.nn.Module, sets: list[InputSet], device: str) -> Observed:
    """Records the calls, then the times."""
    found = Observed()
    for given in sets:
        record(model, given, found)
    for given in sets:
        passes: list[dict[str, float]] = []
        began = time.perf_counter()
        while len(passes) < PASSES[0] or (
            len(passes) < PASSES[1] and time.perf_counter() - began < SECONDS
        ):
            passes.append(timed(model, given, device))
        for path, node in found.nodes.items():
            times = [seconds[path] for seconds in passes if path in seconds]
            if times:
                node.seconds[given.name] = min(times)
        found.seconds[given.name] = min(seconds.get("", 0.0) for seconds in passes)
        if found.seconds[given.name] <= 0:
            raise Failed("forward", f"the model took no measurable time on {given.name}")
    return found
