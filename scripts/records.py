"""Reads records of runs, for other scripts."""

import io
import json
import lzma
import subprocess
import tarfile
from pathlib import Path
from typing import Any


def events(path: Path) -> str:
    """The lines of a run folder's record (`events.jsonl` or `events.jsonl.zst`), or of an archive
    of such a folder."""
    if path.is_file():
        with tarfile.open(path) as archive:
            member = next(m for m in archive if "events.jsonl" in m.name)
            data = (archive.extractfile(member) or io.BytesIO()).read()
            packed = member.name.endswith(".zst")
    else:
        file = next(path.glob("events.jsonl*"))
        data, packed = file.read_bytes(), file.suffix == ".zst"
    if packed:
        data = subprocess.run(["zstd", "-dcq"], input=data, stdout=-1, check=True).stdout
    return data.decode()


def read_json(file: str) -> Any:
    """Reads a JSON file; .xz is decompressed."""
    opened = lzma.open if file.endswith(".xz") else open
    with opened(Path(file), "rt") as text:
        return json.load(text)
