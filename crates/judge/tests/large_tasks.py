"""What differs for tasks with large inputs or results, with the limits lowered so that small ones
count as large. Raises AssertionError where it is wrong; the last line says how many were looked at.
"""

from __future__ import annotations

from typing import Any

import torch
from in_process import opened
from warpwright_oracle import baseline, distance, expected, opening, slices
from warpwright_oracle.oracle import Oracle

DRAW = "torch.randn(100, 128)"
CHANGES_SOME = "x.mul_(2) + 0 if x[0, 0] > 0 else x * 2"


def said(oracle: Oracle, seed: int = 3) -> dict[str, Any]:
    request = {"variant": "init", "seed": seed, "family": "own", "double": False}
    return oracle.expected(request)


def result_is_its_own_truth() -> None:
    oracle = opened("torch.softmax(x, -1)", DRAW)
    assert not oracle.copies
    told = said(oracle)
    (at,), (note,) = told["outputs"]["tensors"], told["notes"]
    assert at["dtype"] == note["dtype"] == "float32", at
    inputs = oracle.arena.view(told["inputs"]["tensors"][0])
    assert torch.equal(oracle.arena.view(at), torch.softmax(inputs, -1))
    assert (note["truth"], note["error"], note["scales"]) == ("same precision", 0.0, [])


def who_changes_or_returns_inputs_gets_copies() -> None:
    for result in ("x.mul_(2) + 1", "(x, x + 1)"):
        assert opened(result, DRAW).copies, result


def who_changes_inputs_now_and_then_is_found() -> None:
    # Opening draws several samples, of which about half are changed.
    try:
        oracle = opened(CHANGES_SOME, DRAW)
        if not oracle.copies:
            for seed in range(3, 20):
                said(oracle, seed)
    except RuntimeError as error:
        assert "changes large inputs" in str(error), error
        return
    assert oracle.copies, "it was not noticed"


def pieces_tell_what_the_whole_does() -> int:
    whole = torch.randn(6, 5, 8, 8)
    lower = whole.tril()
    cases = [(whole, False), (whole + whole.mT, True), (lower, True), (lower.mT, True)]
    looked = 0
    for piece in (slices.PIECE, 1):
        slices.PIECE = distance.PIECE = piece
        for tensor, structured in cases:
            assert slices.structured(tensor) == structured, (piece, looked)
            other = tensor + 0.25
            told = baseline.difference(other, tensor)
            assert told == (other.double() - tensor.double()).abs().max().item()
            looked += 1
        last = lower.clone()
        last[5, 4, 0, 7] = 1.0
        assert not slices.structured(last), "the last matrix counts too"
        gone = whole.clone()
        gone[5, 4, 7, 7] = float("nan")
        assert baseline.difference(gone, whole) is None
    return looked


def main() -> None:
    looked = pieces_tell_what_the_whole_does()
    opening.LARGE_BYTES = expected.LARGE_BYTES = baseline.LARGE_BYTES = 1
    result_is_its_own_truth()
    who_changes_or_returns_inputs_gets_copies()
    who_changes_inputs_now_and_then_is_found()
    print(f"looked at {looked + 3}")


if __name__ == "__main__":
    main()
