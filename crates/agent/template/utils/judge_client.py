"""Asks the judge about this workspace. There is no judging here: the judge runs elsewhere."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

SOCKET = os.environ.get("WARPWRIGHT_JUDGE_SOCKET", "/run/warpwright/judge.sock")
MAX_ANSWER_BYTES = 1 << 20


def ask(question: dict[str, Any]) -> tuple[bool, str]:
    """Returns whether the judge found nothing wrong, and its text."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(SOCKET)
        connection.sendall(json.dumps({"version": 1, **question}).encode() + b"\n")
        answer = bytearray()
        while not answer.endswith(b"\n"):
            part = connection.recv(65536)
            if not part or len(answer) > MAX_ANSWER_BYTES:
                break
            answer += part
    if not answer:
        raise OSError("the judge closed the connection without an answer")
    reply = json.loads(answer)
    return bool(reply["good"]), str(reply["text"])


def _report(question: dict[str, Any]) -> int:
    try:
        good, text = ask(question)
    except (OSError, ValueError, KeyError) as error:
        print(f"error: failed to ask the judge: {error}", file=sys.stderr)
        return 3
    print(text, end="" if text.endswith("\n") else "\n")
    return 0 if good else 1


def main(stage: str) -> int:
    """Asks for a verdict at a stage: built, verified or measured."""
    return _report({"stage": stage})


def inspect(inspection: dict[str, Any]) -> int:
    """Asks what a tool sees in the candidate's process."""
    return _report({"inspection": inspection})
