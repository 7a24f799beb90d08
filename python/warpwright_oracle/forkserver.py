"""The fork server of one role: imports the role's modules, initialises no GPU, and forks.

The library of crate ``jail-fork`` talks to the judge, forks and confines. This process reads no
request and no candidate file. Its forks share only its state at the time it begins to serve. It
must have one thread and no GPU context; the library checks both.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from types import ModuleType

ALSO = {
    ("baseline", "cpu"): "torch._inductor.compile_fx",
    ("baseline", "cuda"): "torch._inductor.compile_fx",
    # Operators that run from shapes alone import it. On the cpu device few oracles run any so.
    ("oracle", "cuda"): "torch._dynamo",
}
"""Module that a role imports at start on a device, in addition to its own."""
GoOn = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_char_p)


def become(program: bytes, module: ModuleType) -> None:
    """Sets the process state that exec would have set and fork does not: arguments, environment,
    random seeds and signal handlers."""
    asked = json.loads(program)
    os.environ.clear()
    os.environ.update(asked["env"])
    args = asked["args"]
    sys.argv = [str(module.__file__), *args[args.index("-m") + 2 :]]
    random.seed()
    torch = sys.modules["torch"]
    torch.default_generator.manual_seed(int.from_bytes(os.urandom(8), "little"))
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def go_on(program: bytes, module: ModuleType) -> int:
    """Runs the role's module in a fork, in its jail. Exits with Python's exit status and never
    returns."""
    code = 1
    try:
        become(program, module)
        module.main()
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


@contextlib.contextmanager
def unasked(device: str) -> Iterator[None]:
    """Replaces ``torch.cuda.is_available`` by a constant answer. Compilers call it when they are
    imported; the real call initialises CUDA, and a fork cannot use a context that its parent
    initialised. A ``cuda`` device implies a GPU."""
    import torch

    ask = torch.cuda.is_available
    torch.cuda.is_available = lambda: device == "cuda"
    try:
        yield
    finally:
        torch.cuda.is_available = ask


def main() -> None:
    """Entry point: ``python -m warpwright_oracle.forkserver LIBRARY ROLE DEVICE``."""
    library, role, device = sys.argv[1:]
    # Forked processes must not inherit the judge's descriptors. The library also takes open device
    # memory for an initialised GPU.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    module = importlib.import_module(f".{role}", __package__)
    with unasked(device):
        if (role, device) in ALSO:
            importlib.import_module(ALSO[role, device])
    if (role, device) == ("baseline", "cpu"):
        importlib.import_module(".inductor_warmup", __package__).warm_up()
    # PyDLL keeps the interpreter's lock during the call: this process has no other thread.
    serve = ctypes.PyDLL(library).warpwright_jail_serve
    serve.argtypes = [GoOn]
    gc.collect()
    # A collection in a fork would otherwise copy every page that holds an object.
    gc.freeze()
    sys.exit(serve(GoOn(lambda program: go_on(program, module))))


if __name__ == "__main__":
    main()
