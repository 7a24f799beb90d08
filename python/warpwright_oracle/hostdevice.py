"""On the cpu device, maps ``'cuda'`` to the host, so that references and candidates run
unmodified."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

FACTORIES = (
    "empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full",
    "full_like", "rand", "rand_like", "randn", "randn_like", "randint", "randperm", "arange",
    "linspace", "logspace", "eye", "tensor", "as_tensor", "scalar_tensor",
)  # fmt: skip
METHODS = ("to", "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor")


def host(value: Any) -> Any:
    """``value``, or the host where it names a CUDA device."""
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


def _mapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in ("device", "device_type"):
            if name in kwargs:
                kwargs[name] = host(kwargs[name])
        return function(*[host(a) for a in args], **kwargs)

    return call


class Stream:
    """A stream of the host. Every call completes before it returns."""

    cuda_stream = 0
    device = torch.device("cpu")

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def synchronize(self) -> None:
        """Nothing is pending."""

    wait_stream = wait_event = lambda self, _: None

    def query(self) -> bool:
        """Nothing is pending."""
        return True

    def record_event(self, event: Event | None = None) -> Event:
        """An event that has happened."""
        event = event or Event()
        event.record()
        return event


class Event:
    """An event of the host. It has happened as soon as it is recorded."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.seconds = 0.0

    def record(self, *_: Any) -> None:
        """Notes the time."""
        self.seconds = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds between two events."""
        return 1e3 * (end.seconds - self.seconds)

    def query(self) -> bool:
        """Nothing is pending."""
        return True

    synchronize = wait = lambda *_: None


def _stub_cuda() -> None:
    """Replaces functions of ``torch.cuda`` by stubs for a single device."""
    stream = Stream()
    stubs: dict[str, Any] = {
        "Stream": Stream,
        "Event": Event,
        "stream": lambda given=None: given or stream,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "set_stream": lambda *_: None,
        "device": Stream,  # a context in which nothing changes
        "set_device": lambda *_: None,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "is_available": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: "cpu",
        "manual_seed": torch.manual_seed,
        "manual_seed_all": torch.manual_seed,
        "memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "reset_peak_memory_stats": lambda *_: None,
    }
    for name, stub in stubs.items():
        setattr(torch.cuda, name, stub)


_done = False


def map_cuda_to_host(source: str, *, pretend: bool) -> None:
    """Patches torch once if ``source`` mentions CUDA: factories, ``to``, ``cuda()``, autocast and
    ``torch.cuda``. With ``pretend`` (candidates), ``is_cuda`` is true as well.

    Sources that never name a CUDA device run on an unpatched torch. Streams and events are the
    host's: every call completes before it returns.
    """
    global _done
    if _done or "cuda" not in source.replace("cuda_extension", ""):
        return
    _done = True
    for name in FACTORIES:
        setattr(torch, name, _mapped(getattr(torch, name)))
    for name in METHODS:
        setattr(torch.Tensor, name, _mapped(getattr(torch.Tensor, name)))
    torch.nn.Module.to = _mapped(torch.nn.Module.to)  # type: ignore[method-assign]
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign,assignment]
    torch.nn.Module.cuda = lambda self, *_, **__: self  # type: ignore[method-assign,assignment]
    if pretend:
        torch.Tensor.is_cuda = property(lambda _: True)  # type: ignore[assignment]
    torch.Tensor.record_stream = lambda *_: None  # type: ignore[method-assign,assignment]
    torch.set_default_device = _mapped(torch.set_default_device)
    torch.autocast.__init__ = _mapped(torch.autocast.__init__)  # type: ignore[method-assign]
    _stub_cuda()
