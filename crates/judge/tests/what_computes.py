"""Which references need a kernel. Raises AssertionError where the answer is wrong; the last line says
how many were asked of.
"""

from __future__ import annotations

import torch
from warpwright_oracle.computes import Computes

X = torch.randn(6, 4)
AT = torch.tensor([0, 1, 1, 3, 5, 0])
ROWS = AT.view(-1, 1).expand(6, 4)
ONES = torch.ones(6, 4)

COMPUTES = {
    "index_put, added up": lambda: torch.zeros(6, 4).index_put((AT,), X, accumulate=True),
    "index_put_, by position": lambda: torch.zeros(6, 4).index_put_((AT,), X, True),
    "scatter, added up": lambda: torch.zeros(6, 4).scatter(0, ROWS, X, reduce="add"),
    "scatter_, multiplied": lambda: torch.ones(6, 4).scatter_(0, ROWS, X, reduce="multiply"),
    "scatter of a value, added up": lambda: torch.zeros(6, 4).scatter(0, ROWS, 2.0, reduce="add"),
    "scatter_add": lambda: torch.zeros(6, 4).scatter_add(0, ROWS, X),
    "scatter_reduce": lambda: torch.zeros(6, 4).scatter_reduce(0, ROWS, X, "amax"),
    "index_add": lambda: torch.zeros(6, 4).index_add(0, AT, X),
    "index_reduce": lambda: torch.zeros(6, 4).index_reduce(0, AT, X, "prod"),
    "comparison": lambda: X > 0,
    "copy after a sum": lambda: (X + 1).clone(),
}
MOVES = {
    "index_put": lambda: torch.zeros(6, 4).index_put((AT,), X),
    "scatter": lambda: torch.zeros(6, 4).scatter(0, ROWS, X),
    "index": lambda: X[AT],
    "gather": lambda: X.gather(0, ROWS),
    "transposed copy": lambda: X.t().contiguous(),
    "concatenation": lambda: torch.cat([X, ONES]),
}


def found(forward: object) -> bool:
    with Computes() as computes:
        forward()  # type: ignore[operator]
    return computes.found


for name, forward in COMPUTES.items():
    assert found(forward), name
for name, forward in MOVES.items():
    assert not found(forward), name
print("asked of", len(COMPUTES), len(MOVES))
