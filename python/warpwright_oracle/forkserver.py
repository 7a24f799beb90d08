"""The parent of processes of one role: imports what they need, touches no GPU, and forks.

The library of crate ``jail-fork`` speaks with the judge, forks and confines. This process reads no
request and nothing that a candidate wrote; what it knows when it begins to serve is all that its
forks share. It must have one thread and no GPU, which the library looks at.
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

ALSO = {"baseline": ["torch._inductor.compile_fx"], "oracle": ["torch._dynamo"]}
"""What a role imports when it starts."""
GoOn = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_char_p)


def become(program: bytes, module: ModuleType) -> None:
    """What an executed Python has and a fork has not: its own arguments, environment, chance and
    handling of signals."""
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
    """The life of a fork, in its jail. Ends the process as Python would, and never returns."""
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
    """Has nobody ask whether there is a GPU. Compilers do, when they are imported; asking opens it,
    and a fork cannot use what its parent has opened. Where the device is one, there is one."""
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
    # What the judge has open is not for its processes, and memory of a GPU counts as one opened.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    module = importlib.import_module(f".{role}", __package__)
    with unasked(device):
        for name in ALSO.get(role, []):
            importlib.import_module(name)
    if (role, device) == ("baseline", "cpu"):
        importlib.import_module(".inductor_warmup", __package__).warm_up()
    # With the interpreter's lock held throughout: nobody else is here.
    serve = ctypes.PyDLL(library).warpwright_jail_serve
    serve.argtypes = [GoOn]
    gc.collect()
    # A collection in a fork would otherwise copy every page that holds an object.
    gc.freeze()
    sys.exit(serve(GoOn(lambda program: go_on(program, module))))


if __name__ == "__main__":
    main()
