"""`python3 -m utils.profiling`: builds, compares and times against the baselines."""

import sys

from utils.judge_client import main

if __name__ == "__main__":
    sys.exit(main("measured"))
