"""Tensors of types for which torch implements few operators, as tensors of other types."""

from __future__ import annotations

import torch

from .tensors import as_reals

UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}


def is_tiny(tensor: torch.Tensor) -> bool:
    """Whether elements are 8-bit floating-point numbers."""
    return tensor.is_floating_point() and tensor.element_size() == 1


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Complex tensors as pairs of real numbers, along an additional dimension; 8-bit floats in
    float32; others unchanged."""
    reals = as_reals(tensor)
    return reals.float() if is_tiny(reals) else reals


def plainly(tensors: list[torch.Tensor] | None) -> list[torch.Tensor] | None:
    """``plain`` for several tensors, or None."""
    return tensors and [plain(tensor) for tensor in tensors]


def workable(tensor: torch.Tensor) -> torch.Tensor:
    """As ``plain``, but pairs of real numbers lie along the last dimension, as twice as many
    elements, and wider unsigned integers become 64-bit ones."""
    if tensor.dtype in UNSIGNED:
        return tensor.to(torch.int64)
    reals = plain(tensor)
    return reals.flatten(-2) if tensor.is_complex() and tensor.dim() else reals


def restored(made: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The inverse of ``workable``: a tensor of the type of ``like``. Numbers beyond an 8-bit
    type's range become its largest ones, since torch would make them NaN."""
    if like.is_complex():
        return torch.view_as_complex(made.reshape(*like.shape, 2).contiguous())
    if is_tiny(like):
        most = torch.finfo(like.dtype).max
        made = made.clamp(-most, most)
    return made.to(like.dtype)
