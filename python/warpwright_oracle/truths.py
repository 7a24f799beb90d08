"""The truth of several samples at once, without the same-precision reference.

A measurement compares about a hundred timed calls. Most are right, and to see that needs only their
truth: a tolerance that leaves this sample's own error of the reference out is never the looser one.
The judge asks for the rest (``Oracle.expected``) where a call is not right by this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .arena import ALIGN
from .channel import exhausted
from .tensors import is_real, unflatten

if TYPE_CHECKING:
    from .oracle import Oracle

CANCELS = 1e-6
"""Share of a mean square that must be variance: a smaller one would have few digits."""


def truths(oracle: Oracle, request: dict[str, Any]) -> dict[str, Any]:
    """Inputs and truths of the samples with these seeds and families, one after the other in the
    arena: of as many as it holds, up to the first for which there is no float64 truth."""
    each, figures = [], []
    end = 0
    oracle.held = None
    if oracle.truth.batches is not None:
        return {"each": []}  # of a task that fills the device
    for seed, family in zip(request["seeds"], request["families"], strict=True):
        try:
            one, known, end = _truth(oracle, request, (seed, family), end)
        except Exception as error:  # ``expected`` says what is wrong
            if exhausted(error) and not isinstance(error, MemoryError):
                raise
            break
        if one is None:
            break
        each.append(one)
        figures += known
    told = torch.stack(figures).tolist() if figures else []
    for one in each:
        sizes = one["sizes"]
        one["sizes"] = [None if count is None else _sizes(count, told.pop(0)) for count in sizes]
    oracle.settle()
    return {"each": each}


def _truth(
    oracle: Oracle, request: dict[str, Any], draw: tuple[int, str], free: int
) -> tuple[dict[str, Any] | None, list[torch.Tensor], int]:
    """One sample from ``free`` on, the figures of its floating-point outputs, and the next offset.
    ``sizes`` has their numbers of elements."""
    seed, family = draw
    input_tree, kept, end = oracle.make(oracle.arena, seed, family, free)
    inputs = unflatten(input_tree, [oracle.arena.view(at) for at in kept])
    asked = {"variant": request["variant"], "double": True, "family": family}
    tree, exacts = oracle.truth.outputs(asked, inputs, end)
    if not exacts or oracle.changes:
        return None, [], free
    places, sizes, figures = [], [], []
    for exact in exacts:
        if exact.is_complex():
            return None, [], free
        (at,), end = oracle.arena.store([exact.contiguous()], end)
        places.append(at)
        real = is_real(exact.dtype)
        sizes.append(exact.numel() if real else None)
        if real:
            figures.append(_figures(oracle.arena.view(at)))
    outputs = {"tree": tree, "tensors": places}
    inputs = {"tree": input_tree, "tensors": kept}
    return {"inputs": inputs, "outputs": outputs, "sizes": sizes}, figures, _aligned(end)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGN) * ALIGN


def _figures(exact: torch.Tensor) -> torch.Tensor:
    """Least and largest element, norm and sum, all NaN where an element is."""
    if not exact.numel():
        return torch.zeros(4, dtype=torch.float64, device=exact.device)
    low, high = torch.aminmax(exact)
    return torch.stack([low, high, torch.linalg.vector_norm(exact), exact.sum()])


def _sizes(count: int, figures: list[float]) -> dict[str, Any] | None:
    """Root mean square, standard deviation and largest magnitude of an output. None where an
    element is not finite, or norm and sum do not give the deviation."""
    low, high, norm, total = figures
    largest = max(-low, high)
    mean_square = norm * norm / max(count, 1)
    variance = mean_square - (total / max(count, 1)) ** 2
    if not count or not largest < float("inf") or not variance > CANCELS * mean_square:
        return None
    return {"rms": mean_square**0.5, "spread": variance**0.5, "largest": largest}
