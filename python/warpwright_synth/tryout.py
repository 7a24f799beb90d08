"""Runs snippets and reports failures: `{"snippets": [{"name", "code"}]}` on standard input.

Each runs in a process of its own, forked from this one. Prints `{"failed": [{"name", "reason"}]}`.
"""

import contextlib
import importlib
import json
import os
import re
import sys
import traceback
import warnings

import torch

from .mine import in_parallel

MODELS = re.compile(r"^from (transformers\.[\w.]+) import", re.MULTILINE)


def run(name: str, code: str) -> dict[str, str]:
    """The snippet's name, with a reason if it fails."""
    warnings.simplefilter("ignore")
    try:
        with torch.no_grad():
            exec(compile(code, name, "exec"), {"__name__": name})
    except BaseException:
        return {"name": name, "reason": traceback.format_exc(limit=-2)[-600:]}
    return {"name": name}


def main() -> None:
    """Entry point."""
    snippets = json.load(sys.stdin)["snippets"]
    torch.set_num_threads(1)
    for module in sorted({m for s in snippets for m in MODELS.findall(s["code"])}):
        # Import once here: it takes seconds, and each fork would repeat it.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    works = [(s["name"], lambda s=s: run(s["name"], s["code"])) for s in snippets]
    results = in_parallel(works, os.cpu_count() or 1)
    failed = [
        {"name": r["name"], "reason": r.get("reason") or r["quarantined"]}
        for r in results
        if len(r) > 1
    ]
    json.dump({"failed": failed}, sys.stdout)


if __name__ == "__main__":
    main()
