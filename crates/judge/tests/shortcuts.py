"""Ways that are only there because they are faster, beside the plain ones: nothing that the judge
decides on may differ. Raises AssertionError where it does; the last line names what was compared.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch._inductor import codecache
from warpwright_oracle import arena, families, headers
from warpwright_oracle import distance as distances_module
from warpwright_oracle.arena import ALIGN
from warpwright_oracle.device_sampling import device_sampling
from warpwright_oracle.distance import Distance, distance
from warpwright_oracle.oracle import Oracle
from warpwright_oracle.reference import Reference
from warpwright_oracle.tensors import flatten, place


def plainly(mine: torch.Tensor, truth: torch.Tensor) -> Distance:
    """What ``distance`` means, one definition after the other."""
    limits = {torch.float16: 65520.0, torch.bfloat16: 2.0**128 - 2.0**119}
    most = limits.get(mine.dtype, float(torch.finfo(mine.dtype).max))
    relative = {torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}.get(mine.dtype, 0.0)
    mine, truth = mine.reshape(-1), truth.reshape(-1)
    within, there = torch.isfinite(truth) & (truth.abs() < most), torch.isfinite(mine)
    known = truth[within & there]
    apart = (mine.double()[within & there] - known).abs()
    if not known.numel():
        return Distance(0.0, 0.0, 0.0, bool((within == there).all()))
    beyond = (apart - relative * known.abs()).clamp_min(0)
    return Distance(
        error=apart.max().item(),
        rms=known.square().mean().sqrt().item(),
        largest=known.abs().max().item(),
        agrees=bool((within == there).all()),
        spread=known.std(correction=0).item(),
        count=known.numel(),
        near=apart.max().item(),
        beyond=beyond.max().item(),
    )


def alike(told: Distance, meant: Distance) -> bool:
    """Equal, but for how sums are rounded."""
    pairs = zip(dataclasses.astuple(told), dataclasses.astuple(meant), strict=True)
    return all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-15) for a, b in pairs)


def what_is_apart() -> int:
    """Elements on which two results say different things are counted and are no errors."""
    truth = torch.randn(1000, dtype=torch.float64)
    mine = truth + 1e-6 * torch.randn(1000)
    mine[::10] += 3.0
    mine[5] += 0.2  # not far enough to be apart, and too far to be an error
    told = distance(mine.float(), truth)
    assert told.apart == 100 and told.near < 1e-5 and told.error > 2.9, told
    # What overflows in half precision is beyond its range, and counts for nothing.
    exact = torch.tensor([1e5, 1.0, -7e4, 2.0], dtype=torch.float64)
    told = distance(exact.half(), exact)
    assert (told.count, told.agrees, told.largest) == (2, True, 2.0), told
    return 2


def distances() -> int:
    inf, nan = float("inf"), float("nan")
    compared = 0
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        for shape in ((1,), (7, 3), (300, 1001)):
            truth = torch.randn(shape, dtype=torch.float64)
            for spoilt, wrong in (
                ({}, {}), ({0: inf}, {}), ({0: nan}, {}), ({}, {0: inf}), ({}, {0: -inf}),
                ({}, {0: nan}), ({0: inf}, {0: inf}), ({0: nan}, {0: nan}), ({0: -inf}, {0: inf}),
            ):  # fmt: skip
                exact, mine = truth.clone(), truth.to(dtype)
                for tensor, values in ((exact, spoilt), (mine, wrong)):
                    for at, value in values.items():
                        tensor.view(-1)[at] = value
                before = mine.clone()
                told, meant = distance(mine, exact), plainly(mine, exact)
                assert alike(told, meant), (dtype, shape, spoilt, wrong, told, meant)
                assert torch.equal(mine.nan_to_num(), before.nan_to_num()), "it changed a result"
                compared += 1
    turned = torch.randn(40, 50, dtype=torch.float64)
    assert alike(distance(turned.float().t(), turned.t()), plainly(turned.float().t(), turned.t()))
    assert distance(torch.ones(3), torch.full((3,), 3.0).double()).error == 2.0, "positive control"
    return compared + 1


def changes() -> int:
    values = torch.randn(3, families.HOST_PIECE - 5)
    traits = families.changeable(values)
    assert traits is not None
    small = families.HOST_PIECE
    for name in families.FAMILIES:
        families.HOST_PIECE = small
        in_pieces = families.change([values], name, {0: traits}, 11)[0]
        families.HOST_PIECE = families.GPU_PIECE
        at_once = families.change([values], name, {0: traits}, 11)[0]
        assert torch.equal(in_pieces.nan_to_num(7.0), at_once.nan_to_num(7.0)), name
        assert not torch.equal(in_pieces, values), "positive control"
    families.HOST_PIECE = small
    return len(families.FAMILIES)


def exchanged() -> int:
    """Integers stay among those that were drawn, equal ones equal and others different."""
    indices = torch.randint(3, 90, (40, 7))
    labels = families.exchangeable(indices)
    assert labels is not None
    other = families.change([indices], "normal", {0: labels}, 5)[0]
    assert not torch.equal(other, indices)
    assert set(other.unique().tolist()) == set(indices.unique().tolist())
    pairs = {
        (a, b) for a, b in zip(indices.view(-1).tolist(), other.view(-1).tolist(), strict=True)
    }
    assert len(pairs) == indices.unique().numel()
    extreme = families.change([indices], "outliers", {0: labels}, 5)[0]
    assert not torch.equal(extreme, indices)
    assert extreme.min() >= indices.min() and extreme.max() <= indices.max()
    kept = (
        torch.arange(30).view(3, 10),  # offsets
        torch.randint(0, 2, (40, 7)),  # a mask
        torch.nn.functional.one_hot(torch.randint(0, 9, (40,))),
        torch.full((40,), 3),
    )
    assert all(families.exchangeable(tensor) is None for tensor in kept)
    return 1 + len(kept)


def looked_at_in_parts() -> int:
    """What a tensor's values say does not depend on how much of it is looked at together."""
    up = torch.arange(24.0).view(1, 24).expand(50, 24) + 0.5
    random = torch.rand(50, 24)
    late = random.clone()
    late[-1] = 7.5  # one row of fifty is in order, the others are not
    tensors = {
        "drawn": random, "late": late, "turned": torch.rand(24, 50).t(),
        "many": torch.rand(3, 5, 7, 11) - 0.5, "ordered": up.contiguous(), "falling": -up.clone(),
        "probabilities": random.softmax(1), "columns": random.softmax(0),
        "unit": torch.nn.functional.normalize(random), "labels": random.mul(9).floor(),
        "constant": torch.full((50, 24), 0.5), "vector": torch.rand(1000),
        "one": torch.rand(1000).softmax(0), "half": random.half().softmax(1),
    }  # fmt: skip
    whole, part = distances_module.PIECE, 100
    quantities = set()
    for name, tensor in tensors.items():
        distances_module.PIECE = whole
        plain = families.changeable(tensor)
        distances_module.PIECE = part
        told = families.changeable(tensor)
        distances_module.PIECE = whole
        assert (plain is None) == (told is None), name
        if plain is not None and told is not None:
            quantities.add(name)
            assert abs(plain.size - told.size) < 1e-9 * plain.size, name
            assert abs(plain.spread - told.spread) < 1e-6 * plain.size, name
            assert plain.signed == told.signed, name
            exact = tensor.double().square().mean().sqrt().item()
            assert abs(told.size - exact) < 1e-6 * exact, name
    assert quantities == {"drawn", "late", "turned", "many", "vector", "unit"}, quantities
    return len(tensors)


class Memory:
    """Stands for an arena, and counts what is stored."""

    def __init__(self) -> None:
        self.stored = 0

    def store(self, tensors: list[torch.Tensor], offset: int) -> tuple[list[Any], int]:
        self.stored += 1
        places = [place(tensor, offset + 512 * i) for i, tensor in enumerate(tensors)]
        return places, offset + 512 * len(tensors)


def held() -> int:
    oracle = Oracle("cpu", "", None)  # type: ignore[arg-type]  # nobody is spoken to
    oracle.arena = memory = Memory()  # type: ignore[assignment]
    oracle.device_sampling = False
    oracle.draw = lambda seed, family: [torch.full((3,), float(seed))]  # type: ignore[method-assign]

    def stores(*draws: tuple[int, str], offset: int = 0, before: Any = None) -> int:
        seeds, names = [d[0] for d in draws], [d[1] for d in draws]
        oracle.inputs({"seeds": seeds, "families": names, "offset": offset})
        if before is not None:
            before()
        stored = memory.stored
        assert oracle.hold(5, "own").places[0]["offset"] == 0
        return memory.stored - stored

    assert stores((5, "own")) == 0, "what lies there need not be made again"
    assert stores((6, "own")) == 1, "another seed"
    assert stores((5, "small")) == 1, "another family"
    assert stores((5, "own"), (5, "own")) == 1, "several"
    assert stores((5, "own"), offset=512) == 1, "elsewhere"
    state = torch.nn.Linear(1, 1)
    oracle.models["init"] = state
    assert stores((5, "own"), before=lambda: oracle.state({"variant": "init"})) == 1, "overwritten"
    return 6


def kept_headers() -> int:
    made = 0

    def compiled(_: str) -> str:
        nonlocal made
        header = Path(codecache._HEADER_DIR) / "a.h"
        if not Path(f"{header}.gch").exists():
            made += 1
            header.write_text("header")
            Path(f"{header}.gch").write_text("compiled")
        return str(header)

    def process(folder: Path | None) -> None:
        codecache._HEADER_DIR = tempfile.mkdtemp()
        codecache._precompile_header = compiled
        if folder is not None:
            headers.keep(folder)
        path = codecache._precompile_header("a")
        assert Path(f"{path}.gch").read_text() == "compiled"

    process(None)
    process(None)
    assert made == 2, "positive control: each process compiles it"
    folder = Path(tempfile.mkdtemp()) / "headers"
    process(folder)
    process(folder)
    assert made == 3, "the second finds what the first left"
    assert sorted(path.name for path in folder.iterdir()) == ["a.h", "a.h.gch"]
    return 2


FUNCTION = "def get_inputs() -> list:\n    return "


def drawn_in_place() -> int:
    """Inputs that are drawn where they are to lie are, bit for bit, those that are stored there."""
    size = 1 << 20
    buffer = ctypes.create_string_buffer(2 * size)
    base = -(-ctypes.addressof(buffer) // ALIGN) * ALIGN
    memory = arena.Memory(torch.device("cpu"), base, size)
    draws = {
        "[torch.randn(ROWS, 17), torch.rand(3, ROWS), torch.randn(5)]",
        "(torch.rand(ROWS, 17),)",
    }
    others = {
        "[torch.randn(ROWS, 17) * 2]", "[torch.randn(3, dtype=torch.float64)]",
        "[torch.randint(0, 5, (ROWS,))]", "[torch.randn(0, 17)]", "[torch.rand(3), ROWS]",
        "[torch.rand(3), [torch.rand(3)]]", "torch.rand(3)", "[torch.rand(800, 800, ROWS)]",
        "[x for x in [torch.rand(3)]]", "[torch.randn(ROWS, 17).t()]", "[torch.rand((3, 4))]",
    }  # fmt: skip
    for number, given in enumerate(sorted(draws | others)):
        source = f"import torch\nROWS = 33\nModel = torch.nn.Module\n{FUNCTION}{given}\n"
        reference = Reference(source, "cpu", "eval", f"drawn{number}")
        found = device_sampling(reference, 5, reference.inputs(5))
        assert (found is not None) == (given in draws), given
        if found is None:
            continue
        for seed in (5, 6, 1 << 61):
            tensors: list[torch.Tensor] = []
            tree = flatten(reference.inputs(seed), tensors)
            stored = memory.store(tensors, 1024)
            memory.view(stored[0][0]).zero_()
            assert (found.tree, found.make(memory, [seed], [1024])) == (tree, [stored])
            assert all(
                torch.equal(memory.view(at), t) for at, t in zip(stored[0], tensors, strict=True)
            )
        try:
            found.make(memory, [5], [size - 512])
        except MemoryError:
            continue
        raise AssertionError("it drew beyond the memory's end")
    return len(draws | others)


class More(Reference):
    """Gives something else than its text says."""

    def inputs(self, seed: int) -> list[Any]:
        return [tensor + 1 for tensor in super().inputs(seed)]


def tried_before_it_counts() -> int:
    """The oracle stores what `get_inputs` gives, until drawing has given the same."""
    buffer = ctypes.create_string_buffer(1 << 16)
    base = -(-ctypes.addressof(buffer) // ALIGN) * ALIGN
    memory = arena.Memory(torch.device("cpu"), base, 1 << 15)
    source = f"import torch\nModel = torch.nn.Module\n{FUNCTION}[torch.rand(40)]\n"
    for lies in (False, True):
        oracle = Oracle("cpu", "", None)  # type: ignore[arg-type]  # nobody is spoken to
        oracle.reference = Reference(source, "cpu", "eval", f"tried{lies}")
        if lies:  # what nobody sees in the text
            oracle.reference = More(source, "cpu", "eval", "more")
        for seed in (3, 4):
            tree, places, end = oracle.make(memory, seed, "own", 0)
            (expected,) = oracle.reference.inputs(seed)
            assert torch.equal(memory.view(places[0]), expected), (lies, seed)
            assert (tree, end) == ({"list": [{"tensor": 0}]}, ALIGN)
        assert bool(oracle.device_sampling) is not lies
    return 2


print(
    "compared",
    distances(),
    what_is_apart(),
    changes(),
    exchanged(),
    looked_at_in_parts(),
    held(),
    kept_headers(),
    drawn_in_place(),
    tried_before_it_counts(),
)
