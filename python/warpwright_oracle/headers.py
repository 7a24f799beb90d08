"""Keeps Inductor's precompiled headers from process to process.

Inductor keeps them outside its cache, in a user's folder below ``/tmp``. In a jail that folder is
new for each process, so every process would precompile torch's headers again. That takes longer
than compiling all of its kernels.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import uuid
from pathlib import Path
from typing import Any


def keep(folder: Path) -> None:
    """Makes Inductor reuse precompiled headers from ``folder`` and store new ones there. A file's
    name encodes the header and the compiler flags. A file appears there only when it is
    complete."""
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
