"""What differs for tasks with large inputs or results, with the limits lowered so that small ones
count as large. Raises AssertionError where it is wrong; the last line says how many were looked at.
"""

from __future__ import annotations

from typing import Any

import torch
from in_process import opened
from warpwright_oracle import baseline, batches, distance, expected, opening, slices
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
    usual = slices.PIECE
    for piece in (1, usual):
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


BY_SAMPLE = (
    "torch.softmax(x, -1)",
    "F.layer_norm(x, (128,))",
    "x / x.norm(dim=1, keepdim=True)",
    "x.argmax(1)",
    "(x.sum(1), torch.sort(x, 1).values)",
    "F.avg_pool1d(x, 3).half()",
)
NOT_BY_SAMPLE = (
    "x / x.norm()",
    "x - x.mean(0)",
    "F.mse_loss(x, x * 0)",
    "x / (1 + 1e-9 * x.sum())",
    "F.batch_norm(x, None, None, training=True)",
    "x.cumsum(0)",
    "x.flip(0)",
    "x.roll(1, 0)",
    "x @ x.T",
    "x.T",
    "(x * 2, x.mean())",
    "x * (1 if x.shape[0] > 4 else 2)",
    "torch.where(x > x.median(), x, x * 0)",
    "x.mul_(2) + 0",
    "torch.fft.rfft(x)",
)


def slices_give_what_the_whole_gives() -> int:
    for result in BY_SAMPLE:
        oracle = opened(result, DRAW)
        request = {"variant": "other", "seed": 3, "family": "own", "double": True}
        told = oracle.expected(request)
        wholes = [oracle.arena.view(at).clone() for at in told["outputs"]["tensors"]]
        assert oracle.truth.divide(1) == "", (result, oracle.truth.divide(1))
        slicing = oracle.truth.batches
        assert slicing is not None
        slicing.rows = 7
        told = oracle.expected(request)
        assert all(note["truth"] == "float64" for note in told["notes"]), result
        sliced = [oracle.arena.view(at) for at in told["outputs"]["tensors"]]
        for mine, whole in zip(sliced, wholes, strict=True):
            assert torch.equal(mine, whole.to(mine.dtype)), result
            assert mine.dtype != torch.float64, "it takes no more memory than a result"
        calibrated = oracle.calibrate(
            {"weights": "other", "double": True, "seed": 5, "families": False}
        )
        (own, *_) = calibrated["admitted"]
        assert calibrated["exact"], result
        assert all(note["honest"] is not None for note in own["notes"] if note["real"]), result
    return len(BY_SAMPLE)


def what_slices_change_is_not_sliced() -> int:
    for result in NOT_BY_SAMPLE:
        oracle = opened(result, DRAW)
        assert oracle.truth.divide(1), result
        assert oracle.truth.batches is None
    return len(NOT_BY_SAMPLE)


# All of these give the same for a few samples as for slices of them.
HIDDEN = "torch.randn(8192, 8)"
HIDDEN_FROM_A_FEW = (
    "x * torch.clamp(0.97 * (8192 * 8) ** 0.5 / x.norm(), max=1.0)",
    "x + 3 * (torch.arange(x.shape[0]) >= 4506).to(x.dtype)[:, None]",
    "torch.cat([x[:16] * 0, x[:-16]])[:x.shape[0]]",
    "x.argmax(1) + (torch.arange(x.shape[0]) >= 4506)",
)


def what_a_few_samples_hide_is_not_sliced() -> int:
    for result in HIDDEN_FROM_A_FEW:
        oracle = opened(result, HIDDEN)
        why = oracle.truth.divide(1)
        assert why == "slices differ from the whole at full size", (result, why)
        assert oracle.truth.batches is None
    oracle = opened("torch.tanh(x)", HIDDEN)
    assert oracle.truth.divide(1) == "", "control"
    return len(HIDDEN_FROM_A_FEW)


def truths_far_from_the_reference_are_not_used() -> None:
    request = {"variant": "init", "seed": 3, "family": "own", "double": True}
    for result, truth in (("torch.tanh(x)", "float64"), (HIDDEN_FROM_A_FEW[0], "same precision")):
        oracle = opened(result, HIDDEN)
        cut = frozenset({0})
        oracle.truth.batches = batches.Batches(cut, 8192, 256, [torch.float32], [1e-5])
        told = oracle.expected(request)
        assert told["notes"][0]["truth"] == truth, (result, told["notes"])
        assert bool(told["doubt"]) == (truth != "float64"), told["doubt"]


def memory_that_lacks_makes_slices_smaller() -> None:
    oracle = opened("torch.relu(x)", DRAW)
    assert oracle.truth.divide(1) == ""
    slicing, sizes = oracle.truth.batches, []
    assert slicing is not None

    def short(tensors: list[torch.Tensor]) -> torch.Tensor:
        sizes.append(tensors[0].shape[0])
        if tensors[0].shape[0] > 10:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return tensors[0] * 2

    slicing.rows = 100
    given = torch.randn(100, 128)
    made = torch.empty(100, 128)
    slicing.fill(short, [given], [made])
    assert torch.equal(made, (given.double() * 2).float())
    assert sizes[:3] == [100, 25, 6], sizes


def main() -> None:
    looked = pieces_tell_what_the_whole_does()
    looked += slices_give_what_the_whole_gives() + what_slices_change_is_not_sliced()
    looked += what_a_few_samples_hide_is_not_sliced()
    truths_far_from_the_reference_are_not_used()
    memory_that_lacks_makes_slices_smaller()
    opening.LARGE_BYTES = expected.LARGE_BYTES = baseline.LARGE_BYTES = 1
    result_is_its_own_truth()
    who_changes_or_returns_inputs_gets_copies()
    who_changes_inputs_now_and_then_is_found()
    print(f"looked at {looked + 5}")


if __name__ == "__main__":
    main()
