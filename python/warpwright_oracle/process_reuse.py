"""Serves several tasks of one author in one process, one after the other. On a GPU, creating the
context and warming the compiler take most of the time of examining a small task.

A hostile task could leave something behind for the next one, so tasks of unknown authors get
processes of their own.
"""

from __future__ import annotations

import gc
import linecache
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch

from . import reference
from .channel import Channel, Handler


class Closes(Protocol):
    """Serves one task."""

    def close(self) -> None:
        """Releases everything outside of it, such as mapped memory."""


class ProcessReuse:
    """Answers requests through a current object, which serves one task."""

    def __init__(self, make: Callable[[], Closes], channel: Channel) -> None:
        self.make = make
        self.channel = channel
        self.current: Closes | None = make()

    def handlers(self, names: Iterable[str]) -> dict[str, Handler]:
        """Handlers by name that call the current object, and ``next``."""

        def of(name: str) -> Handler:
            return lambda request: getattr(self.current, name)(request)

        return {**{name: of(name) for name in names}, "next": self.next}

    def next(self, _: dict[str, Any]) -> dict[str, Any]:
        """Forgets the task and prepares for another. Requests a GPU itself. Raises if this process
        lost the GPU; the process is unusable then."""
        if torch.cuda.is_initialized():
            with self.channel.holding("shared"):
                torch.cuda.synchronize()
                self._forget()
                torch._C._cuda_clearCublasWorkspaces()
                torch.cuda.empty_cache()
                torch.cuda.set_per_process_memory_fraction(1.0)
        else:
            self._forget()
        self.current = self.make()
        return {}

    def _forget(self) -> None:
        if self.current is not None:
            self.current.close()
        self.current = None
        reference.unload()
        linecache.clearcache()
        if "torch._dynamo" in sys.modules:
            torch._dynamo.reset()
        gc.collect()
