"""The truth of several samples agrees with what ``expected`` says of each. Raises AssertionError where
that is not so; the last line says how many were compared.
"""

from __future__ import annotations

from typing import Any

import torch
from in_process import SIZE, opened
from warpwright_oracle.oracle import Oracle

SEEDS = [3, 4, 5, 6]
DRAW = "torch.randn(100, 128)"


def truths(oracle: Oracle, seeds: list[int] = SEEDS) -> list[dict[str, Any]]:
    request = {"variant": "init", "seeds": seeds, "families": ["own"] * len(seeds)}
    return oracle.truths(request)["each"]


def close(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-9 * abs(other)


def same_as_expected(result: str, inputs: str = DRAW) -> int:
    """Compares tensors and figures; returns how many samples."""
    oracle = opened(result, inputs)
    each = truths(oracle)
    assert len(each) == len(SEEDS), result
    held = [
        [
            oracle.arena.view(at).clone()
            for part in ("inputs", "outputs")
            for at in one[part]["tensors"]
        ]
        for one in each
    ]
    for seed, one, tensors in zip(SEEDS, each, held, strict=True):
        request = {"variant": "init", "seed": seed, "family": "own", "double": True}
        full = oracle.expected(request)
        places = full["inputs"]["tensors"] + full["outputs"]["tensors"]
        for mine, at in zip(tensors, places, strict=True):
            assert torch.equal(mine, oracle.arena.view(at)), result
        for size, note in zip(one["sizes"], full["notes"], strict=True):
            if size is not None:
                assert all(close(size[key], note[key]) for key in ("rms", "spread", "largest")), (
                    result
                )
    return len(each)


def has_figures(result: str) -> bool:
    return all(size is not None for one in truths(opened(result, DRAW)) for size in one["sizes"])


def main() -> None:
    compared = 0
    for result in ("torch.relu(x * 2 + 1)", "(x.sum(0), x.softmax(-1))", "x.argmax(-1)", "x + 1e6"):
        compared += same_as_expected(result)
    compared += same_as_expected("x.sum()", "torch.rand(1, 7)")
    assert has_figures("x.exp()"), "positive control"
    assert not has_figures("torch.where(x > 2, float('inf'), x)"), "not every element is finite"
    assert not has_figures("1e9 + x"), "the deviation has no digits"
    assert truths(opened("torch.complex(x, x)", DRAW)) == [], "complex outputs are left to others"
    large = opened("x * 2", f"torch.randn({SIZE // 40})")
    assert len(truths(large)) == 3, "as many as the arena holds"
    print(f"compared {compared}")


main()
