"""What a recorder needs of a task, found without a call of its reference: weights and the shapes of
inputs. A large task then costs no more than its weights.
"""

from __future__ import annotations

from typing import Any

import torch

from .reference import Reference
from .tensors import flatten, place


def inputs(reference: Reference, source: str, seeds: list[int]) -> list[dict[str, Any]]:
    """The inputs of each seed, whose tensors have no values unless ``get_inputs`` looks at them."""
    try:
        with torch.device("meta"):
            shapes = Reference(source, "meta", reference.mode, "described")
            return [value(shapes.inputs(seed)) for seed in seeds]
    except Exception:  # it looks at values; if it is at fault, it raises again
        return [value(reference.inputs(seed)) for seed in seeds]


def value(given: Any) -> dict[str, Any]:
    """A value as data, its tensors as shapes."""
    tensors: list[torch.Tensor] = []
    tree = flatten(given, tensors)
    return {"tree": tree, "tensors": [place(tensor, None) for tensor in tensors]}
