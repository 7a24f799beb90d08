"""Reads the record of a run, for the tests of trainers."""

from __future__ import annotations

import subprocess
from pathlib import Path


def events(folder: Path) -> str:
    """The lines of a run folder's record: `events.jsonl` or `events.jsonl.zst`."""
    file = next(folder.glob("events.jsonl*"))
    data = file.read_bytes()
    if file.suffix == ".zst":
        data = subprocess.run(["zstd", "-dcq"], input=data, stdout=-1, check=True).stdout
    return data.decode()
