"""Inputs that the sampling kernel makes have the distributions asked for, whatever is sampled beside
them. The kernel runs as a host program here, one thread after the other. Raises AssertionError where
that is not so; the last line says how many numbers were looked at.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
import tempfile
from pathlib import Path

import torch
from warpwright_oracle.sampler import JOB

PRELUDE = """
#include <cmath>
#define __global__
#define __device__
struct Index { unsigned x, y; };
static Index blockIdx, blockDim, gridDim, threadIdx;
struct alignas(16) float4 { float x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static float logarithm(float x) { return std::log(x); }
static void sine_cosine(float x, float* s, float* c) { *s = std::sin(x), *c = std::cos(x); }
#define __logf logarithm
#define __sincosf sine_cosine
"""
DRIVER = """
extern "C" void run(const Job* jobs, unsigned blocks, unsigned tensors) {
    gridDim = {blocks, tensors}, blockDim = {64, 1};
    for (blockIdx.y = 0; blockIdx.y < tensors; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
            for (threadIdx.x = 0; threadIdx.x < 64; ++threadIdx.x) fill(jobs);
}
extern "C" void words(u64 seed, u64 number, unsigned position, unsigned* four) {
    const Four c = philox(seed, number, position);
    four[0] = c.x, four[1] = c.y, four[2] = c.z, four[3] = c.w;
}
"""
COUNT = 1 << 20


def library() -> ctypes.CDLL:
    native = Path(__file__).parents[1] / "native" / "sampling.cu"
    folder = Path(tempfile.mkdtemp())
    source = folder / "sampling.cpp"
    source.write_text(PRELUDE + native.read_text() + DRIVER)
    built = folder / "sampling.so"
    flags = ["-O2", "-shared", "-fPIC", "-Wno-unknown-pragmas"]
    subprocess.run(["g++", *flags, str(source), "-o", str(built)], check=True)
    return ctypes.CDLL(str(built))


def sampled(kernel: ctypes.CDLL, jobs: list[tuple[int, int, int, bool]], blocks: int = 7) -> list:
    """The tensors of jobs: number of elements, seed, position, whether normal."""
    rooms = [torch.full((count + 8,), 77.0) for count, *_ in jobs]
    packed = b"".join(
        JOB.pack(room.data_ptr(), *job) for room, job in zip(rooms, jobs, strict=True)
    )
    kernel.run(ctypes.c_char_p(packed), blocks, len(jobs))
    for room, (count, *_) in zip(rooms, jobs, strict=True):
        assert bool((room[count:] == 77.0).all()), "nothing behind a tensor is written"
    return [room[:count] for room, (count, *_) in zip(rooms, jobs, strict=True)]


def apart(values: torch.Tensor, distribution: torch.Tensor) -> float:
    """Largest distance of the empirical distribution from the function's values at the elements,
    times the root of their number (Kolmogorov)."""
    ranks = torch.arange(values.numel(), dtype=torch.float64) / values.numel()
    return (distribution - ranks).abs().max().item() * math.sqrt(values.numel())


def main() -> None:
    kernel = library()
    four = (ctypes.c_uint * 4)()
    kernel.words(ctypes.c_uint64(0), ctypes.c_uint64(0), 0, four)
    # The known answers of Random123.
    assert [f"{word:08x}" for word in four] == ["5f6fb709", "0d893f64", "4f121f81", "4f730a48"]
    normal, uniform, odd = sampled(
        kernel, [(COUNT, 5, 0, True), (COUNT, 5, 1, False), (1003, 5, 0, True)]
    )
    assert torch.equal(odd, normal[:1003]), "a number depends on its place alone"
    (again,) = sampled(kernel, [(COUNT, 5, 0, True)], blocks=64)
    assert torch.equal(again, normal), "and on no launch"
    for other in ((COUNT, 6, 0, True), (COUNT, 5 + (1 << 33), 0, True), (COUNT, 5, 1, True)):
        (values,) = sampled(kernel, [other])
        pairs = torch.stack([values, normal]).double()
        assert abs(torch.corrcoef(pairs)[0, 1].item()) < 5 / math.sqrt(COUNT), other
    ordered = normal.double().sort().values
    assert apart(ordered, torch.special.ndtr(ordered)) < 2.0
    assert apart(ordered, torch.special.ndtr(ordered + 0.01)) > 2.0, "positive control"
    assert normal.isfinite().all() and 4.0 < normal.abs().max() < 7.0
    neighbours = torch.stack([normal[:-1], normal[1:]]).double()
    assert abs(torch.corrcoef(neighbours)[0, 1].item()) < 5 / math.sqrt(COUNT)
    ordered = uniform.double().sort().values
    assert apart(ordered, ordered) < 2.0 and ordered[0] >= 0 and ordered[-1] < 1
    print(f"looked at {2 * COUNT}")


main()
