"""Traces many references, each in a fork of one process that has imported torch.

    python3 -P trace_each.py REFERENCES TRACES

REFERENCES holds `0.py`, `1.py` and so on; TRACES gets for each `0.json`, what `utils/trace.py`
makes of it, or `0.error` with one sentence. What a reference does to its process ends with it.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings

from utils.graph_json import Refusal
from utils.trace import by_lines, trace

PATIENCE_SECONDS = 60
"""Longest that one takes."""
WARM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
def get_inputs():
    return [torch.randn(2, 2)]
"""
"""A reference that loads what tracing needs, so that the forks have it."""


def put(folder: str, name: str, text: str) -> None:
    whole = os.path.join(folder, name)
    with open(whole + ".part", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(whole + ".part", whole)


def one(reference: str, folder: str, number: str) -> None:
    try:
        put(folder, f"{number}.json", by_lines(trace(reference)))
    except Refusal as refusal:
        put(folder, f"{number}.error", str(refusal))
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:600]
        put(folder, f"{number}.error", f"{type(error).__name__}: {first}")


def main() -> int:
    warnings.filterwarnings("ignore")
    references, folder = sys.argv[1:]
    warm = os.path.join(folder, "warm.py")
    with open(warm, "w", encoding="utf-8") as f:
        f.write(WARM)
    trace(warm)
    numbers = sorted(int(name.removesuffix(".py")) for name in os.listdir(references))
    for number in numbers:
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE_SECONDS)
            try:
                one(os.path.join(references, f"{number}.py"), folder, str(number))
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        done = any(os.path.exists(os.path.join(folder, f"{number}.{e}")) for e in ("json", "error"))
        if not done:
            how = signal.Signals(status & 0x7F).name if os.WIFSIGNALED(status) else "no result"
            put(folder, f"{number}.error", f"its process ended: {how}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
