"""`python3 -m utils.verification`: builds and compares with the reference on fresh inputs.

`--sanitize [CHECK ...]`: runs one call under a sanitizer instead; the checks are memcheck,
racecheck, initcheck and synccheck; memcheck and racecheck where none is named.
"""

import sys

from utils.judge_client import inspect, main

CHECKS = ("memcheck", "racecheck", "initcheck", "synccheck")
USAGE = f"usage: python3 -m utils.verification [--sanitize [{'|'.join(CHECKS)}] ...]"

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit(main("verified"))
    if arguments[0] == "--sanitize" and all(check in CHECKS for check in arguments[1:]):
        checks = arguments[1:] or ["memcheck", "racecheck"]
        sys.exit(inspect({"kind": "sanitize", "checks": checks}))
    print(USAGE, file=sys.stderr)
    sys.exit(2)
