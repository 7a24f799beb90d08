"""`python3 -m utils.profiling`: builds, compares and times against the baselines.

`--kernels`: which kernels one call runs, how long each takes, how much of it fits a multiprocessor.
`--counters`: hardware counters per kernel, where the judge's machine has `ncu`.
"""

import sys

from utils.judge_client import inspect, main

USAGE = "usage: python3 -m utils.profiling [--kernels | --counters]"

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit(main("measured"))
    if arguments in (["--kernels"], ["--counters"]):
        sys.exit(inspect({"kind": arguments[0].removeprefix("--")}))
    print(USAGE, file=sys.stderr)
    sys.exit(2)
