"""Reads what runs left, for the scripts beside this."""

import io
import json
import lzma
import subprocess
import tarfile
from pathlib import Path
from typing import Any


def events(path: Path) -> str:
    """The record's lines: of a run folder (`events.jsonl` or `events.jsonl.zst`), or of an archive
    that holds one."""
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
    """A JSON file, or one packed as .xz."""
    opened = lzma.open if file.endswith(".xz") else open
    with opened(Path(file), "rt") as text:
        return json.load(text)
