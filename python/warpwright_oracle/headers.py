"""Headers that Inductor compiles ahead, kept from process to process.

Inductor keeps them outside its cache, in a folder of the user's below ``/tmp``, which in a jail is
a new one each time: every process would compile torch's headers again, which takes longer than all
its kernels.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import uuid
from pathlib import Path
from typing import Any


def keep(folder: Path) -> None:
    """Has Inductor find what earlier processes compiled in ``folder``, and leave there what it
    compiles. Names say what a header was compiled from and how; files appear there whole."""
    from torch._inductor import codecache

    compiled = codecache._precompile_header
    here = Path(codecache._HEADER_DIR)

    @functools.wraps(compiled)
    def with_kept(*args: Any, **kwargs: Any) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        here.mkdir(parents=True, exist_ok=True)
        for known in folder.glob("[!.]*"):
            with contextlib.suppress(FileExistsError):
                (here / known.name).symlink_to(known)
        path = compiled(*args, **kwargs)
        for made in (Path(path), Path(f"{path}.gch")):
            kept = folder / made.name
            if made.is_file() and not made.is_symlink() and not kept.exists():
                partial = folder / f".{uuid.uuid4().hex}"
                shutil.copyfile(made, partial)
                partial.replace(kept)
        return path

    codecache._precompile_header = with_kept
