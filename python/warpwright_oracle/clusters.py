"""The family of inputs with similar rows: each is near one of two rows, of which one rises and the
other falls.

``get_inputs()`` usually samples independent numbers, and families that are functions of a value
keep them independent. Then every expert gets the same number of tokens, all queues have the same
length, an iteration converges at once, and the largest numbers of a row are spread evenly. This
family breaks those regularities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from .families import Labels, Traits, each_changed
from .slices import structured
from .tensors import dense

OWN_PART = 1 / 16
"""Remaining share of a row's own numbers."""
USUAL = 7 / 8
"""Share of the elements of an integer tensor that get one common value."""
LEAST = 4
"""Fewest rows, and fewest elements per row, of a tensor that the family changes."""


@dataclass
class Clusters:
    """State of the family: the tensors that it changes, found on one set of inputs and fixed
    thereafter."""

    known: dict[int, Traits | Labels]
    way: int = 0
    """The way in use. 0: rows are similar and nearly sorted; 1: only similar; 2: only nearly
    sorted."""

    @staticmethod
    def of(tensors: list[torch.Tensor], traits: dict[int, Traits | Labels]) -> Clusters:
        """Selects the tensors to change: quantities without structure, and integers that may occur
        more than once."""
        known: dict[int, Traits | Labels] = {}
        for i, traits_of_it in traits.items():
            tensor = dense(tensors[i])
            if tensor is None or structured(tensor):
                continue
            rows = tensor.dim() > 1 and min(tensor.shape[-1], tensor.numel() // tensor.shape[-1])
            if isinstance(traits_of_it, Labels):
                if not traits_of_it.distinct:
                    known[i] = traits_of_it
            elif rows >= LEAST:
                known[i] = traits_of_it
        return Clusters(known)

    def ways(self) -> list[int]:
        """The ways to try, in order."""
        quantities = any(isinstance(known, Traits) for known in self.known.values())
        return [0, 1, 2] if quantities else [0] if self.known else []

    def ties(self) -> bool:
        """Whether elements may become equal that were not: quantities with few bits may."""
        return any(isinstance(known, Traits) for known in self.known.values())

    def change(self, inputs: Any, seed: int) -> Any:
        """``inputs`` with similar rows, determined by the seed."""
        return each_changed(inputs, seed, self.known, self._changed)

    def _changed(
        self, tensor: torch.Tensor, known: Traits | Labels, random: torch.Generator
    ) -> torch.Tensor:
        if isinstance(known, Labels):
            return _usual(tensor, random)
        rows = tensor.reshape(-1, tensor.shape[-1])
        if self.way == 2:
            rows = rows.sort(-1, descending=bool(torch.rand((), generator=random) < 0.5)).values
        else:
            two = rows[torch.randint(rows.shape[0], (2,), generator=random).to(rows.device)]
            if self.way == 0:
                two = two.sort(-1).values
                two[1] = two[1].flip(-1)
            which = torch.randint(2, (rows.shape[0],), generator=random)
            rows = two[which.to(rows.device)] + OWN_PART * rows
        result = torch.empty_like(tensor)
        result.copy_(rows.to(tensor.dtype).view(tensor.shape))
        return result


def _usual(tensor: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    value = tensor.reshape(-1)[torch.randint(tensor.numel(), (), generator=random).item()]
    usual = torch.rand(tensor.shape, generator=random) < USUAL
    return torch.where(usual.to(tensor.device), value, tensor)
