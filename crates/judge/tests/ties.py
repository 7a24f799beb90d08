"""Elements near a tie are found in honest programs, and those that lower precision moves are not.
Raises AssertionError else; the last line says how many references were looked at.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from in_process import opened
from warpwright_oracle.oracle import Oracle

SEEDS = 3
LOG2E = 1.4426950408889634
Program = Callable[[torch.Tensor], torch.Tensor]


def quantised(x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().amax(-1, keepdim=True) * (1 / 127)
    return torch.round(x * (1 / scale)).to(torch.int8)


def dequantised(x: torch.Tensor) -> torch.Tensor:
    scale = x.abs().amax(-1, keepdim=True) * (1 / 127)
    return torch.round(x * (1 / scale)) * scale


def counted(x: torch.Tensor) -> torch.Tensor:
    return torch.floor(torch.exp2(x * LOG2E) * 1000).to(torch.int64)


MIDDLES = "torch.cat([torch.full((64, 1), 127.0), torch.randint(-120, 120, (64, 255)) + 0.5], 1)"
REFERENCES: dict[str, tuple[str, Program, str]] = {
    "integers": (
        "torch.round(x / (x.abs().amax(-1, keepdim=True) / 127)).to(torch.int8)",
        quantised,
        f"{MIDDLES} * (torch.rand(64, 1) + 0.5)",
    ),
    "floating": (
        "torch.round(x / (s := x.abs().amax(-1, keepdim=True) / 127)) * s",
        dequantised,
        f"{MIDDLES} * (torch.rand(64, 1) + 0.5)",
    ),
    "buckets": (
        "torch.floor(torch.exp(x) * 1000).to(torch.int64)",
        counted,
        "torch.log(torch.randint(100, 5000, (64, 256)) / 1000.0)",
    ),
}
"""Of each what it makes of ``x``, another program, and inputs near ties."""


def found(oracle: Oracle, program: Program, seed: int) -> tuple[int, int]:
    """Elements that a program has and neither the truth nor the reference, and how many of these
    some honest program has."""
    (x,) = oracle.draw(seed, "own")
    (truth,) = oracle.truth.under(torch.no_grad(), [x.double()], "init") or []
    own, got = oracle.models["init"](x).double(), program(x).double()
    apart = 1e-3 * truth.abs().max() if truth.is_floating_point() else 0
    wrong = ((got - truth).abs() > apart) & ((got - own).abs() > apart)
    places = wrong.reshape(-1).nonzero().reshape(-1)
    if not len(places):
        return 0, 0
    asked = {"seed": seed, "family": "own", "variant": "init", "output": 0}
    said = oracle.ties(asked | {"places": places.tolist()})["programs"]
    near = (torch.tensor(said, dtype=torch.float64) - got.reshape(-1)[places]).abs() <= 0.1 * apart
    return len(places), int(near.any(0).sum())


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # what is so small is done sooner by one
    for name, (result, program, inputs) in REFERENCES.items():
        torch.manual_seed(5)  # what errs is drawn as well
        oracle = opened(result, inputs)
        honest = [found(oracle, program, seed) for seed in range(SEEDS)]
        wrong, has = (sum(column) for column in zip(*honest, strict=True))
        assert wrong > 100, (name, wrong, "the control has nothing near a tie")
        assert has >= 0.98 * wrong, (name, wrong, has)
        oracle = opened(result, "torch.randn(64, 256)")
        lower = [found(oracle, lambda x: program(x.half().float()), seed) for seed in range(SEEDS)]  # noqa: B023
        wrong, has = (sum(column) for column in zip(*lower, strict=True))
        assert wrong > 50 and has < 0.1 * wrong, (name, wrong, has)
    print("looked at", len(REFERENCES))


if __name__ == "__main__":
    main()
