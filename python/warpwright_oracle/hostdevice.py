"""On the cpu device, ``'cuda'`` means the host: references and candidates run unmodified."""

from __future__ import annotations

import functools
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
        if "device" in kwargs:
            kwargs["device"] = host(kwargs["device"])
        return function(*[host(a) for a in args], **kwargs)

    return call


_done = False


def map_cuda_to_host(source: str, *, pretend: bool) -> None:
    """Patches torch once, if ``source`` speaks of CUDA: factories, ``to``, ``cuda()`` and basics
    of ``torch.cuda``; with ``pretend`` (candidates), ``is_cuda`` is true as well.

    Sources that never name a CUDA device run on an unpatched torch.
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
    torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]
    torch.cuda.is_available = lambda: True  # type: ignore[assignment]
    torch.cuda.device_count = lambda: 1  # type: ignore[assignment]
    torch.cuda.current_device = lambda: 0  # type: ignore[assignment]
