"""Calls of cuDNN and cuBLAS become operations of recordings, or are refused by name. Runs the cases of ``recorder.py`` too.

Raises AssertionError where the answer is wrong; the last line says how many were recorded and refused.
"""

from __future__ import annotations

from collections.abc import Callable

import recorder
from recorder import Recorded, counts, run
from recorder_parts import Server


def convolutions_are_recorded(server: Server) -> None:
    """Descriptors become fields; questions for algorithm and workspace leave nothing behind."""
    torch = server.torch
    weights = {"weight": torch.randn(6, 4, 3, 3)}
    done = Recorded(server, "Convolved", weights=weights, shapes=((2, 4, 6, 6),))
    sizes = "[[2, 4, 6, 6], [6, 4, 3, 3], [2, 6, 6, 6]] [[1, 1], [1, 1], [1, 1], 1, 3, None]"
    assert done.second == [f"convolution (input 0, weight 0, made 0) {sizes}"], done.second

    weights["bias"] = torch.randn(6)
    given = {"weights": weights, "shapes": ((2, 4, 6, 6), (2, 6, 6, 6))}
    sizes = sizes.replace("3, None", "0, 1")
    for mode, keeps, kept in [(1, True, " + input 1"), (5, False, "")]:
        done = Recorded(server, "Fused", init=(mode, keeps), **given)
        words = f"convolution (input 0, weight 0, made 0) {sizes} activation {mode} of it"
        assert done.second == [f"{words} + weight 1{kept}"], done.second
        (node,) = (n for n in done.recording["nodes"] if n["phase"] == "second")
        beta = node["op"]["convolution"]["beta"]
        assert beta == {"f32": 0x3F000000 if keeps else 0}, beta

    weights = {"weight": torch.randn(6, 2, 2, 3, 3)}
    done = Recorded(server, "Transposed", weights=weights, shapes=((2, 6, 2, 3, 4),))
    sizes = "[[2, 6, 2, 3, 4], [6, 2, 2, 3, 3], [2, 4, 4, 5, 9]]"
    numbers = "[[0, 0, 0], [2, 1, 2], [1, 1, 1], 2, 1, 1]"
    words = f"transposed convolution (input 0, weight 0, made 0) {sizes} {numbers}"
    assert done.second == [words], done.second


def products_are_recorded(server: Server) -> None:
    """Products with vectors, and those whose matrices' addresses lie on the device."""
    one, zero = {"f32": 0x3F800000}, {"f32": 0}
    done = Recorded(server, "Vectors", shapes=((64,), (16,)))
    place = "gemv (input 0, input 1, made 0)"
    assert done.second == [
        f"{place} [0, [4, 8], 4, [1, 1], [0, 0, 0], 1] {one} {zero}",
        f"{place} [1, [4, 4], 4, [2, 1], [0, 0, 0], 1] {one} {one}",
        f"{place} [0, [4, 4], 4, [1, 1], [16, 4, 4], 2] {one} {zero}",
    ], done.second

    done = Recorded(server, "Arrays", shapes=((32,), (16,)))
    upload, product = done.second
    assert upload == "upload made 1 input 0 48", upload
    numbers = "[[0, 0], [4, 4, 4], [4, 4, 4], [0, 0, 0], 68, 0]"
    words = f"gemm of arrays (made 1, made 1+16, made 1+32) {numbers} {one} {zero}"
    assert product == words, product


def products_of_cublaslt_are_recorded(server: Server) -> None:
    """Descriptors become fields; the algorithm is the replayer's."""
    weights = {"weight": server.torch.randn(6, 8), "bias": server.torch.randn(6)}
    for epilogue, bias in [(36, " + weight 1"), (1, "")]:
        done = Recorded(server, "Linear", init=(epilogue,), weights=weights, shapes=((4, 8),))
        words = "matmul (weight 0, input 0, made 0, made 0) [[8, 6], [8, 4], [6, 4], [6, 4]]"
        numbers = f"[[1, 0], 77, {epilogue}]"
        assert done.second == [f"{words} {numbers}{bias}"], done.second


def boxes_are_copied_row_by_row(server: Server) -> None:
    """Whole slices are rows of one copy, others are a copy each."""
    done = Recorded(server, "Boxes", shapes=((256,),))
    assert done.second == [
        "copy made 0 <- input 0 [8, 6, 8, 16]",
        "copy made 0 <- input 0+100 [8, 3, 8, 16]",
        "copy made 0+24 <- input 0+180 [8, 3, 8, 16]",
        "copy made 0 <- input 0+100 [8, 2, 24, 80]",
    ], done.second


REFUSED = [
    ("run_lt_scales", "sets attribute 17 (cublasLtMatmulDescSetAttribute)"),
    ("run_backward_vector", "calls cublasSgemv with a vector that begins at its end"),
    ("run_host_arrays", "passes cublasSgemmBatched an array of the host"),
    ("run_filter_gradient", "calls cudnnConvolutionBackwardFilter"),
    ("run_int8_convolution", "calls cudnnConvolutionForward with the data type 3"),
]


def other_calls_of_libraries_are_named(server: Server) -> None:
    """What is not recorded is refused by its name."""
    for name, reason in REFUSED:
        answer = server.record("OtherLibraryCall", init=(name,))
        said = answer.get("recording", {}).get("refused")
        assert said is not None and reason in said, f"{name}: {answer}"
        counts["refused"] += 1


def errors_of_libraries_reach_the_candidate(server: Server) -> None:
    """An activation that cuDNN does not fuse is no refusal: the candidate may have another way."""
    weights = {"weight": server.torch.randn(6, 4, 3, 3), "bias": server.torch.randn(6)}
    shapes = ((2, 4, 6, 6), (2, 6, 6, 6))
    error = server.record("Fused", init=(2, True), weights=weights, shapes=shapes)["error"]
    assert "launcher run_fused returned error 3000" in error["message"], error


CASES: list[Callable[[Server], None]] = [
    convolutions_are_recorded,
    products_are_recorded,
    products_of_cublaslt_are_recorded,
    boxes_are_copied_row_by_row,
    other_calls_of_libraries_are_named,
    errors_of_libraries_reach_the_candidate,
]

if __name__ == "__main__":
    run([*recorder.CASES, *CASES])
