"""Results of honest programs for single elements.

Where a reference rounds, compares or searches, the last bit of an intermediate result decides an
element near a tie: a quotient of 12.5 rounds to 12 or to 13. No error measure shows that. Several
programs do, each of which errs in every operator as float32 does.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import torch

from .rounding import Reordered, part_equals
from .tensors import as_reals, flatten, to_double, unflatten

if TYPE_CHECKING:
    from .oracle import Oracle

PROGRAMS = 12
"""If each program falls on the other side of a tie in nearly half of the cases, at least one of
these does in all but one of a thousand cases."""
TIMES = (1.0, 2.0, 4.0)
"""Errors of their operators, in float32 units of roundoff, in turn. Their inputs are exact, because
a program may copy or compare them exactly. Only equal inputs are made to differ, since their order
is undefined."""


def said(oracle: Oracle, request: dict[str, Any]) -> dict[str, Any]:
    """For the ``places`` of one ``output``, in row-major order, the results of several programs:
    numbers, None for non-finite ones. Empty if no program runs in float64."""
    if oracle.truth.batches is not None:
        return {"programs": []}  # all inputs in float64 do not fit the device
    inputs = oracle.draw(request["seed"], request["family"])
    places = torch.tensor(request["places"])
    programs: list[list[float | None]] = []
    for times in islice(cycle(TIMES), PROGRAMS):
        taken: list[torch.Tensor] = []
        tree = flatten(to_double(inputs), taken)
        for each in taken:
            if each.dtype == torch.float64:
                part_equals(each)
        mode = Reordered(times, everywhere=True)
        given = oracle.truth.under(mode, unflatten(tree, taken), request["variant"])
        if given is None:
            break
        tensor = as_reals(given[request["output"]]).reshape(-1)
        some = tensor[places.to(tensor.device)].double()
        programs.append([v if abs(v) < float("inf") else None for v in some.tolist()])
    oracle.settle()
    return {"programs": programs}
