"""`python3 -m utils.verification`: builds and compares with the reference on fresh inputs."""

import sys

from utils.judge_client import main

if __name__ == "__main__":
    sys.exit(main("verified"))
