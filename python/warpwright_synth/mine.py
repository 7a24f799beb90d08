"""Makes the catalogue: `python -m warpwright_synth.mine --out FILE [--source transformers]`.

Each operator is probed in a process of its own, forked from this one. One that crashes, hangs or
exhausts memory affects no other, and is recorded as quarantined.
"""

import argparse
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from . import candidates
from .entries import entry, undetermined_on_cuda
from .forms import Target

FORMAT = 1
# Limits per operator.
WALL_SECS = 40.0
BUDGET_SECS = {"torch": 7.0, "transformers": 5.0}
MEMORY_BYTES = 24 << 30


def in_child(work: Callable[[], Any]) -> tuple[int, int]:
    """Starts a fork that writes the result as JSON; returns its process id and the pipe's read
    end."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.close(reading)
    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        # Discard the operators' output.
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        with os.fdopen(writing, "w") as pipe:
            json.dump(work(), pipe)
        status = 0
    finally:
        os._exit(status)


class Probe:
    """One running fork."""

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        self.name = name
        self.pid, self.reading = in_child(work)
        self.started = time.monotonic()
        self.text = b""

    def overdue(self) -> bool:
        """Whether its time has run out."""
        return time.monotonic() - self.started > WALL_SECS

    def end(self) -> Any:
        """Its result, or the reason for its quarantine."""
        hung = self.overdue()
        if hung:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.reading)
        _, status = os.waitpid(self.pid, 0)
        if hung:
            return {"name": self.name, "quarantined": f"still running after {WALL_SECS:.0f} s"}
        if os.WIFSIGNALED(status):
            word = signal.Signals(os.WTERMSIG(status)).name
            return {"name": self.name, "quarantined": f"ended its process with {word}"}
        try:
            return json.loads(self.text)
        except ValueError:
            return {
                "name": self.name,
                "quarantined": f"ended its process with status {status >> 8}",
            }


def in_parallel(works: list[tuple[str, Callable[[], Any]]], workers: int) -> list[Any]:
    """Runs all works, at most `workers` in parallel; returns results in the order of `works`."""
    waiting = list(enumerate(works))[::-1]
    running: dict[int, tuple[int, Probe]] = {}
    results: list[Any] = [None] * len(works)
    while waiting or running:
        while waiting and len(running) < workers:
            place, (name, work) = waiting.pop()
            probe = Probe(name, work)
            running[probe.reading] = (place, probe)
        ready, _, _ = select.select(list(running), [], [], 0.5)
        for reading, (place, probe) in list(running.items()):
            chunk = os.read(reading, 1 << 16) if reading in ready else None
            if chunk:
                probe.text += chunk
            elif chunk == b"" or probe.overdue():
                results[place] = probe.end()
                del running[reading]
                if place % 50 == 0:
                    print(f"{place} of {len(works)}", file=sys.stderr, flush=True)
    return results


def without_aliases(
    entries: list[dict[str, Any]], out: list[dict[str, str]]
) -> list[dict[str, Any]]:
    """Merges functions that dispatch to the same kernels with the same results into one
    operator."""
    kept: list[dict[str, Any]] = []
    first: dict[str, str] = {}
    for found in entries:
        digest = found.pop("digest")
        if found["kind"] != "module":
            key = json.dumps(
                [found["kernels"], digest, found["forms"][0]["inputs"]], sort_keys=True
            )
            if key in first:
                out.append({"name": found["name"], "reason": f"an alias: {first[key]}"})
                continue
            first[key] = found["name"]
        kept.append(found)
    return kept


def catalogue(
    source: str, targets: list[Target], out: list[dict[str, str]], workers: int
) -> dict[str, Any]:
    """Probes all targets."""
    works = [(t.name, lambda t=t: entry(t, BUDGET_SECS[source])) for t in targets]
    entries, quarantined = [], []
    for found in in_parallel(works, workers):
        if "forms" in found:
            entries.append(found)
        elif "quarantined" in found:
            quarantined.append({"name": found["name"], "reason": found["quarantined"]})
        else:
            out.append(found)
    undetermined = undetermined_on_cuda()
    entries = without_aliases(entries, out)
    for found in entries:
        if found["name"] in undetermined:
            found["determinism"] = "cpu"
    versions = {"python": sys.version.split()[0], "torch": torch.__version__.split("+")[0]}
    if source == "transformers":
        import transformers

        versions["transformers"] = transformers.__version__
    return {
        "format": FORMAT,
        "source": source,
        "versions": versions,
        "entries": sorted(entries, key=lambda e: e["name"]),
        "quarantined": sorted(quarantined, key=lambda e: e["name"]),
        "left_out": sorted(out, key=lambda e: e["name"]),
    }


def merged(path: str, made: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """The catalogue in a file, with the newly probed operators replaced."""
    with open(path, encoding="utf-8") as file:
        whole = json.load(file)
    for part in ("entries", "quarantined", "left_out"):
        kept = [e for e in whole[part] if e["name"] not in names]
        whole[part] = sorted(kept + made[part], key=lambda e: e["name"])
    return whole


def pretty(made: dict[str, Any]) -> str:
    """JSON with a line for each field of an entry and each form: small, readable in a diff."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    parts = []
    for key, value in made.items():
        if key == "entries":
            entries = []
            for e in value:
                fields = []
                for name, item in e.items():
                    if name == "forms":
                        forms = ",\n    ".join(line(f) for f in item)
                        fields.append(f'"forms":[\n    {forms}]')
                    else:
                        fields.append(f"{line(name)}:{line(item)}")
                entries.append("  {" + ",\n   ".join(fields) + "}")
            joined = ",\n".join(entries)
            parts.append(f'"entries":[\n{joined}]')
        elif isinstance(value, list):
            parts.append(f"{line(key)}:[\n  " + ",\n  ".join(line(v) for v in value) + "]")
        else:
            parts.append(f"{line(key)}:{line(value)}")
    return "{" + ",\n".join(parts) + "}\n"


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--source", choices=("torch", "transformers"), default="torch")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="*", default=[], help="probe these anew in FILE")
    options = parser.parse_args()
    # Otherwise each fork would import it at its first call under a dispatch mode.
    importlib.import_module("torch._dynamo")
    # One thread: forks of a process with more would lack the others.
    torch.set_num_threads(1)
    if options.source == "torch":
        targets, out = candidates.all_of_torch()
    else:
        from . import models

        targets, out = models.all_of_transformers()
    if options.only:
        targets = [t for t in targets if t.name in options.only]
        out = [o for o in out if o["name"] in options.only]
    made = catalogue(options.source, targets, out, options.workers)
    if options.only:
        made = merged(options.out, made, set(options.only))
    with open(options.out, "w", encoding="utf-8") as file:
        file.write(pretty(made))


if __name__ == "__main__":
    main()
