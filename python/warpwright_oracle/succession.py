"""One task after the other in one process: for tasks that one author wrote, whom nothing is hidden
from. On a GPU a context and a warm compiler are most of what a look at a small task costs.

What a hostile task leaves behind would meet the next one: such tasks get processes of their own.
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
        """Lets go of what lies outside of it."""


class Succession:
    """Answers requests by one object after the other, each of which knows one task."""

    def __init__(self, make: Callable[[], Closes], channel: Channel) -> None:
        self.make = make
        self.channel = channel
        self.current: Closes | None = make()

    def handlers(self, names: Iterable[str]) -> dict[str, Handler]:
        """Those of the object at hand, by name, and ``next``."""

        def of(name: str) -> Handler:
            return lambda request: getattr(self.current, name)(request)

        return {**{name: of(name) for name in names}, "next": self.next}

    def next(self, _: dict[str, Any]) -> dict[str, Any]:
        """Forgets the task, and is ready for another. Asks for a GPU itself. Raises where that was
        lost to this process, which is of no use then."""
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
