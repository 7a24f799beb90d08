"""The torch side of the judge: oracle, baseline and runner.

Each is one process in a jail. The judge drives it over an inherited socket. No process here decides
a verdict: the judge trusts the values of the oracle and the baseline, and trusts the runner with
nothing. The judge is not Python; it reads memory and clocks itself.
"""
