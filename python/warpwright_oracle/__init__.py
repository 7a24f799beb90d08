"""The torch side of the judge: oracle, baseline and runner.

Each is one process in a jail, driven by the judge over an inherited socket. Nothing here decides
anything: the oracle and the baseline are trusted for values, the runner is not trusted at all, and
the judge, which is not Python, reads memory and clocks itself.
"""
