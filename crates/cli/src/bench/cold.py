"""One candidate without a judge: a new process builds its extension, compares it with the reference
on five inputs, and times both.

``python cold.py REQUEST.json``; prints seconds by stage as JSON. Reference and candidate lie in the
folder that PYTHONPATH names, where the extension is built. Extensions are built by
``torch.utils.cpp_extension.load`` where ninja is there, else by the same compilers with the same
flags, all files at once.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

CHECKS = 5
WARM_UP = 10
RUNS = 100


class Laps:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def end(self, stage: str) -> None:
        """The stage ends here, where the next begins."""
        now = time.perf_counter()
        self.seconds[stage] = now - self.last
        self.last = now


def build(request: dict[str, Any]) -> str:
    """Builds ``cuda_extension``, so that it can be imported; how."""
    from torch.utils import cpp_extension

    if cpp_extension.is_ninja_available():
        cpp_extension.load(
            "cuda_extension",
            request["sources"],
            extra_cflags=request["cxx_flags"],
            extra_cuda_cflags=request["cuda_flags"],
            extra_include_paths=request["include"],
            build_directory=request["folder"],
            with_cuda=request["device"] != "cpu",
        )
        return "torch.utils.cpp_extension.load"
    compile_all(request)
    return "compilers, all files at once"


def compile_all(request: dict[str, Any]) -> None:
    """As ``load`` has ninja do it."""
    import subprocess
    import sysconfig

    import torch
    from torch.utils import cpp_extension

    cuda = request["device"] != "cpu"
    folders = cpp_extension.include_paths("cuda" if cuda else "cpu")
    folders = [*folders, *request["include"], sysconfig.get_path("include")]
    common = ["-DTORCH_EXTENSION_NAME=cuda_extension", *(f"-I{folder}" for folder in folders)]
    running, objects = [], []
    for source in request["sources"]:
        objects.append(f"{request['folder']}/{Path(source).name}.o")
        if source.endswith(".cu"):
            command = [f"{request['cuda_home']}/bin/nvcc", "-std=c++17", "-Xcompiler", "-fPIC"]
            command += request["cuda_flags"]
        else:
            command = ["g++", "-std=c++17", "-fPIC", *request["cxx_flags"]]
        command += [*common, "-c", source, "-o", objects[-1]]
        running.append(subprocess.Popen(command))
    if any(process.wait() for process in running):
        raise SystemExit("a compiler failed")
    target = f"{request['folder']}/cuda_extension.so"
    libraries = ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    if cuda:
        libraries += ["-lc10_cuda", "-ltorch_cuda", f"-L{request['cuda_home']}/lib64", "-lcudart"]
    where = f"-L{Path(torch.__file__).parent / 'lib'}"
    link = ["g++", "-shared", *objects, where, *libraries, *request["cxx_flags"], "-o", target]
    subprocess.run(link, check=True)


def main() -> None:
    """See above."""
    request = json.loads(Path(sys.argv[1]).read_text())
    laps = Laps()
    import torch

    device = torch.device(request["device"])
    torch.zeros(1, device=device)
    laps.end("import")
    how = build(request)
    laps.end("build")
    reference = importlib.import_module("reference")
    new = importlib.import_module("model_new")
    init = reference.get_init_inputs()
    model = reference.Model(*init).to(device)
    candidate = new.ModelNew(*init).to(device)
    candidate.load_state_dict(model.state_dict())

    def inputs(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return [given.to(device) for given in reference.get_inputs()]

    def settle() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    with torch.no_grad():
        for seed in range(CHECKS):
            given = inputs(seed)
            torch.testing.assert_close(candidate(*given), model(*given), rtol=1e-3, atol=1e-3)
        laps.end("verify")
        compiled = torch.compile(model)
        given = inputs(CHECKS)
        compiled(*given)
        settle()
        laps.end("compile")
        medians = {}
        for name, call in (("eager", model), ("compile", compiled), ("candidate", candidate)):
            for _ in range(WARM_UP):
                call(*given)
            times = []
            for _ in range(RUNS):
                settle()
                started = time.perf_counter()
                call(*given)
                settle()
                times.append(time.perf_counter() - started)
            medians[name] = sorted(times)[RUNS // 2] * 1e3
    laps.end("profile")
    print(json.dumps({"how": how, "seconds": laps.seconds, "milliseconds": medians}))


main()
