"""Framed JSON over an inherited socket: four bytes of length, little endian, then UTF-8."""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import struct
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

MAX_FRAME_BYTES = 64 << 20
AWAKE_SECONDS = 0.02
"""Longest time that a process polls for an announced request."""
OUT_OF_MEMORY = ("allocate memory", "bad_alloc", "the arena has no room")

Handler = Callable[[dict[str, Any]], dict[str, Any]]


class Refusal(Exception):
    """An error answer of a named kind, with a text for people."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def arguments() -> argparse.ArgumentParser:
    """Command-line arguments that the judge passes to each process: the device, the descriptor of
    the process's end of the socket, and the library that maps memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--library", required=True)
    return parser


class Channel:
    """The process's end of the socket to the judge."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.awake = False
        """Whether to poll for the next request instead of sleeping."""

    def _exactly(self, count: int) -> bytes | None:
        parts = []
        while count:
            part = self.socket.recv(min(count, 1 << 20))
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def receive(self) -> dict[str, Any] | None:
        """The next request, or None when the judge has closed the socket."""
        if self.awake:
            self._look_out()
        head = self._exactly(4)
        if head is None:
            return None
        (length,) = struct.unpack("<I", head)
        body = self._exactly(length)
        return None if body is None else json.loads(body)

    def _look_out(self) -> None:
        """Polls until there is something to receive, or ``AWAKE_SECONDS`` have passed."""
        self.awake = False
        end = time.monotonic() + AWAKE_SECONDS
        flags = socket.MSG_DONTWAIT | socket.MSG_PEEK
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                self.socket.recv(1, flags)
                return

    def descriptor(self) -> int:
        """The descriptor that came with the last request."""
        _, descriptors, _, _ = socket.recv_fds(self.socket, 1, 1)
        if not descriptors:
            raise EOFError("the judge has sent no descriptor")
        return descriptors[0]

    def send(self, reply: dict[str, Any]) -> None:
        """Answers the last request."""
        body = json.dumps(reply, separators=(",", ":")).encode()
        self.socket.sendall(struct.pack("<I", len(body)) + body)

    @contextlib.contextmanager
    def holding(self, how: str) -> Iterator[None]:
        """While answering a request: holds the device ``alone``, or ``shared`` with other
        processes."""
        self._hold(how)
        try:
            yield
        finally:
            self._hold("nothing")

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Wraps a start-up that holds the device while it creates a context. The answer to the
        judge's first request, a ping, follows when that is done."""
        self.receive()
        with self.holding("shared"):
            yield
        self.send({})

    def _hold(self, how: str) -> None:
        self.send({"hold": how})
        if self.receive() is None:
            raise EOFError("the judge has closed the conversation")


def serve(channel: Channel, handlers: dict[str, Handler]) -> None:
    """Answers requests until the judge closes the socket; ``ping`` confirms that the process is up.
    An answer repeats the ``nonce`` of its request, if any. After ``turn`` the process polls,
    because the next request begins a timed window: waking up would take tens of microseconds, which
    vary."""
    handlers = {"ping": lambda _: {}, **handlers}
    while (request := channel.receive()) is not None:
        do, nonce = request.pop("do"), request.pop("nonce", None)
        try:
            reply = handlers[do](request)
            channel.awake = do == "turn"
        except Refusal as refusal:
            reply = {"error": {"kind": refusal.kind, "message": str(refusal), "trace": ""}}
        except BaseException as error:  # report every error to the judge
            reply = {"error": describe(error)}
        channel.send(reply if nonce is None else {**reply, "nonce": nonce})


def exhausted(error: BaseException) -> bool:
    """Whether memory was exhausted."""
    import torch

    said = isinstance(error, RuntimeError) and any(t in str(error) for t in OUT_OF_MEMORY)
    return said or isinstance(error, (torch.OutOfMemoryError, MemoryError))


def describe(error: BaseException) -> dict[str, str]:
    """An exception as data: kind, message and the last frames outside this package."""
    kind = "raised"
    if exhausted(error):
        kind = "memory"
    elif isinstance(error, ModuleNotFoundError):
        kind = "missing_module"
    elif isinstance(error, SyntaxError):
        kind = "syntax"
    frames = traceback.extract_tb(error.__traceback__)
    outside = [f for f in frames if "warpwright_oracle" not in f.filename]
    lines = "".join(traceback.format_list(outside[-6:]))
    message = f"{type(error).__name__}: {error}"
    return {"kind": kind, "message": message[:4000], "trace": lines[-4000:]}
