"""Sets precision explicitly, for reference and candidate with the same function."""

from __future__ import annotations

import torch


def apply(profile: str) -> None:
    """Sets matmul and convolution precision for ``strict``, ``tf32``, ``paper`` or ``as-run``.

    Torch's own default computes float32 convolutions in TF32 on NVIDIA GPUs, so ``strict`` sets
    both switches. ``paper`` and ``as-run`` leave torch as the user finds it.
    """
    if profile in ("paper", "as-run"):
        return
    tf32 = profile == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32


def fingerprint() -> dict[str, str]:
    """Versions for the record."""
    import platform

    return {"torch": torch.__version__, "python": platform.python_version()}
