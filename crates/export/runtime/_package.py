"""Reads the package, and compares every file with its manifest."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

FORMAT = 1


class PackageError(RuntimeError):
    """The package cannot be used: its files were changed, or another one has its name."""


class MismatchError(RuntimeError):
    """A call outside of what was judged, with ``on_mismatch="raise"``."""


@dataclass
class Files:
    """The files of a package, as its manifest names them."""

    folder: Path
    digest: str
    spec: dict[str, Any]
    hashes: dict[str, str]

    def read(self, path: str) -> bytes:
        """A file, compared with the manifest at the moment that it is read."""
        expected = self.hashes.get(path)
        try:
            content = (self.folder / path).read_bytes()
        except OSError as error:
            raise _changed(self.folder / path, "cannot be read") from error
        if expected is None or hashlib.sha256(content).hexdigest() != expected:
            raise _changed(self.folder / path, "is not what was exported")
        return content

    def reference(self, path: str) -> ModuleType:
        """The judged reference: a module with ``Model``, ``get_inputs``, ``get_init_inputs``."""
        content = self.read(path)
        name = f"_warpwright_reference_{self.digest[:12]}_{path.replace('/', '_')[:-3]}"
        if name in sys.modules:
            return sys.modules[name]
        found = importlib.util.spec_from_file_location(name, self.folder / path)
        if found is None or found.loader is None:
            raise _changed(self.folder / path, "cannot be loaded")
        module = importlib.util.module_from_spec(found)
        sys.modules[name] = module
        try:
            # What was compared: the loader could take compiled code from a cache instead.
            exec(compile(content, str(self.folder / path), "exec"), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
        return module


def _changed(path: Path, what: str) -> PackageError:
    return PackageError(
        f"failed to load {path}: it {what}. The package is refused: install it again, or export "
        "it again with `warpwright export`"
    )


def read(init: str) -> Files:
    """The package of an ``__init__.py``. Every file of the manifest is compared."""
    folder = Path(init).resolve().parent
    try:
        manifest = (folder / "manifest.json").read_bytes()
        hashes = json.loads(manifest)["sha256"]
    except (OSError, ValueError, KeyError) as error:
        raise _changed(folder / "manifest.json", "cannot be read") from error
    files = Files(folder, hashlib.sha256(manifest).hexdigest(), {}, hashes)
    for path in hashes:
        files.read(path)
    files.spec = json.loads(files.read("package.json"))
    if files.spec.get("format") != FORMAT:
        raise _changed(folder / "package.json", "has another format than this program reads")
    return files
