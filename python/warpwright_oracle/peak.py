"""How much memory a process of the judge has held."""

from __future__ import annotations

import resource

import torch


def peak_bytes(cuda: bool) -> int:
    """Most bytes that this process has held at a time: on a GPU what torch took of its memory, on
    the cpu device its resident memory."""
    if cuda:
        return torch.cuda.max_memory_reserved()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
