"""The parent of runners: imports torch, touches no GPU, and forks.

The library of crate ``jail-fork`` speaks with the judge, forks and confines. This process reads no
request and nothing that a candidate wrote; what it knows when it begins to serve is all that its
forks share. It must have one thread and no GPU, which the library looks at.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import signal
import sys

from . import runner
from .runner import torch

GoOn = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_char_p)


def become(program: bytes) -> None:
    """What an executed Python has and a fork has not: its own arguments, environment, chance and
    handling of signals."""
    asked = json.loads(program)
    os.environ.clear()
    os.environ.update(asked["env"])
    args = asked["args"]
    sys.argv = [runner.__file__, *args[args.index("-m") + 2 :]]
    random.seed()
    torch.default_generator.manual_seed(int.from_bytes(os.urandom(8), "little"))
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def go_on(program: bytes) -> int:
    """The life of a fork, in its jail. Ends the process as Python would, and never returns."""
    code = 1
    try:
        become(program)
        runner.main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def main() -> None:
    """Entry point: ``python -m warpwright_oracle.forkserver LIBRARY``."""
    # With the interpreter's lock held throughout: nobody else is here.
    serve = ctypes.PyDLL(sys.argv[1]).warpwright_jail_serve
    serve.argtypes = [GoOn]
    gc.collect()
    # A collection in a fork would otherwise copy every page that holds an object.
    gc.freeze()
    sys.exit(serve(GoOn(go_on)))


if __name__ == "__main__":
    main()
