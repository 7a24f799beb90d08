"""What honest programs say of single elements.

Where a reference rounds, compares or searches, an element near a tie is one thing or the other by
the last bit of what came before: a quotient of 12.5 rounds to 12 or to 13. No error tells that;
several programs do, each of which errs in every operator as float32 does.
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
"""One of which errs to the other side of a tie in all but one of a thousand cases, if each does in
nearly half."""
TIMES = (1.0, 2.0, 4.0)
"""Units roundoff of float32 by which their operators err, in turn. Their inputs do not: who copies
or compares them does so exactly. Only equal ones are parted, as their order is nobody's."""


def said(oracle: Oracle, request: dict[str, Any]) -> dict[str, Any]:
    """For the ``places`` of one ``output``, in row-major order, what each of several programs has:
    numbers, None for those that are not finite. No programs where none runs in float64."""
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
