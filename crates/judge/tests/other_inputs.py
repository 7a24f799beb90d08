"""What families make of inputs. Raises AssertionError where it is something else; the last line says
how much was looked at.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F
from warpwright_oracle import families
from warpwright_oracle.clusters import Clusters
from warpwright_oracle.constants import Constants
from warpwright_oracle.families import (
    CLUSTERS,
    CONSTANTS,
    ENDS,
    FAMILIES,
    LAST,
    SLICES,
    STRUCTURES,
    TRIED_FIRST,
    change,
    changeable,
    exchangeable,
)
from warpwright_oracle.slices import FILLS, WAYS, Slices
from warpwright_oracle.structures import Ends, Structures


def changed(values: torch.Tensor, family: str, seed: int = 7) -> torch.Tensor:
    traits = changeable(values)
    assert traits is not None
    return change([values], family, {0: traits}, seed)[0]


def all_are_tried() -> int:
    assert sorted((*TRIED_FIRST, LAST)) == sorted(
        (*FAMILIES, SLICES, CONSTANTS, CLUSTERS, STRUCTURES, ENDS)
    )
    return len(TRIED_FIRST)


def structured_rows() -> int:
    """Rows are rearranged or scaled, masks and integers have runs, and few slices are far away."""
    rows = torch.randn(96, 500)
    inputs = [rows, torch.randint(0, 9, (64, 33)), torch.rand(16, 40) < 0.5]
    given = {0: changeable(rows), 1: exchangeable(inputs[1])}
    family = Structures.of(inputs, given)
    family.way = 1  # no row is scaled
    made, labels, mask = family.change(inputs, 7)
    assert torch.equal(made.sort(-1).values, rows.sort(-1).values) and not torch.equal(made, rows)
    assert torch.equal(family.change(inputs, 7)[0], made)
    assert set(labels.unique().tolist()) <= set(inputs[1].unique().tolist())
    assert torch.equal(mask, inputs[2])
    family.way = 0
    _, _, mask = family.change(inputs, 7)
    assert bool((mask[:, 1:] != mask[:, :-1]).sum(-1).eq(1).all())
    ends = Ends.of([rows], {0: given[0]}, "return x.amax(-1)").change([rows], 7)[0]
    assert 1e11 < -ends.min().item() < 1e12 and (ends == rows).float().mean() > 0.9
    assert not Ends.of([rows], {0: given[0]}, "x.masked_fill(mask, -1e9)").known
    return 2


def spikes() -> int:
    """One element is far from all others, wherever pieces begin, and zeros are none."""
    for size in (2, 1000, families.HOST_PIECE + 3):
        values = torch.randn(size)
        values[::3] = 0.0
        spiked = changed(values, "spike")
        other = spiked != values
        assert 1 <= int(other.sum()) <= 2, size
        assert torch.allclose(spiked[other].abs(), families.SPIKE * values.abs().max())
        assert not (other & (values == 0)).any()
        if size > 2:
            assert not torch.equal(changed(values, "spike", 8), spiked), "another seed"
    return 3


def steep() -> int:
    """What is not shifted overflows, and float32's own roundings are small."""
    logits = changed(torch.randn(64, 512), "steep")
    assert torch.isinf(logits.exp()).any() and torch.isfinite(logits.softmax(-1)).all()
    assert not torch.isinf(changed(torch.randn(64, 512), "large").exp()).any(), "it is why it is"
    return 2


def sums() -> int:
    """Probabilities are left alone, also in short formats; what sums to nearly the same is not."""
    kept, free = [], []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for rows in (3, 64):
            kept.append(torch.randn(rows, 8192).softmax(-1).to(dtype))
            free.append(torch.rand(rows, 8192).to(dtype))
    free.append(torch.nn.functional.normalize(torch.randn(64, 128)))
    free.append(torch.nn.functional.normalize(torch.randn(64, 128), dim=0))
    assert all(changeable(each) is None for each in kept)
    assert all(changeable(each) is not None for each in free)
    return len(kept) + len(free)


def known(tensors: list[torch.Tensor]) -> dict[int, families.Traits | families.Labels]:
    found = {i: changeable(each) or exchangeable(each) for i, each in enumerate(tensors)}
    return {i: traits for i, traits in found.items() if traits is not None}


def slices() -> int:
    """A few slices of each kind, wherever they lie, and all else as it was."""
    values = torch.randn(64, 8, 32)
    made = Slices.of([values], known([values]))
    starts, seen = set(), dict.fromkeys(FILLS, 0)
    for seed in range(60):
        (other,) = made.change([values], seed)
        moved = other != values
        assert 32 < int(moved.sum()) <= 5 * 8 * 32, "a row or a matrix of each kind"
        rows = other.view(-1, 32)
        equal = (rows == rows[:, :1]).all(1)
        seen["zero"] += bool((rows == 0).all(1).any())
        seen["constant"] += bool((equal & (rows[:, 0] != 0)).any())
        seen["tiny"] += bool(((rows.abs().amax(1) < 1e-4) & ~equal).any())
        seen["low"] += bool((rows < -127).all(1).any())
        seen["high"] += bool((rows > 64).any())
        starts.add(int(moved.view(-1).nonzero()[0]))
        assert torch.equal(made.change([values], seed)[0], other), "the same again"
    assert len(starts) > 20, starts
    assert all(count == 60 for count in seen.values()), seen
    (vector,) = (torch.randn(1000),)
    (other,) = Slices.of([vector], known([vector])).change([vector], 3)
    assert 200 < int((other != vector).sum()) < 1000, "parts of a vector"
    assert made.ways() == [0, 5, 8, 9, 10], "without two values"
    for way in made.ways():
        names, made.way = WAYS[way][0], way
        assert made.ties() == bool({"zero", "constant"} & set(names))
        (other,) = made.change([values], 1)
        assert ("low" in names) == bool((other.view(-1, 32) < -127).all(1).any())
    return 60


def slices_of_two_values() -> int:
    """Masks and one-hot rows get slices of one value, of the other, and of both."""
    hot = F.one_hot(torch.randint(0, 40, (200,)), 40)
    tensors = [torch.rand(200, 40) < 0.5, hot.float(), hot, torch.ones(200, 40, dtype=torch.int64)]
    made = Slices.of(tensors, known(tensors))
    assert sorted(made.known) == [0, 1, 2, 3]
    for seed in range(10):
        for other in made.change(tensors, seed):
            rows = other.double()
            assert set(rows.unique().tolist()) == {0.0, 1.0}
            assert (rows == 0).all(1).any() and (rows == 1).all(1).any()
            assert ((rows.sum(1) > 8) & (rows.sum(1) < 32)).any()
    index = torch.randint(0, 9, (50, 40))
    (other,) = Slices.of([index], known([index])).change([index], 1)
    assert (other == 0).all(1).any() and (other == 8).all(1).any()
    assert other.min() == 0 and other.max() == 8, "in range"
    few = torch.rand(4, 1, 120) < 0.7
    for seed in range(200):
        (other,) = Slices.of([few], known([few])).change([few], seed)
        assert (~other).all(-1).any() and other.all(-1).any(), "none of few rows is covered"
    mask = torch.rand(50, 40) < 0.5
    made = Slices.of([mask], known([mask]))
    ways = ((1, 1), (0, 1), (1, 0), (0, 0))
    for way, (none, full) in zip(made.ways(), ways, strict=True):
        made.way = way
        (other,) = made.change([mask], 5)
        assert ((~other).all(1).any(), other.all(1).any()) == (none, full), way
    return len(tensors) + 2


def slices_leave_alone() -> int:
    """What is bound by a structure, and what means something else."""
    square = torch.randn(16, 16)
    kept = [
        square + square.T,
        torch.stack([square.tril(), square.tril()]),
        torch.arange(32.0),
        torch.randperm(32),
        torch.randn(8, 32).softmax(-1),
        ((square + square.T) > 0).float(),
        torch.stack([torch.randperm(64)[:16] for _ in range(8)]),
        torch.randn(32).as_strided((8, 16), (1, 1)),
    ]
    assert not Slices.of(kept, known(kept)).known
    return len(kept)


def views() -> int:
    """Elements of views are changed as others are, and lie as before."""
    wide = torch.randn(64, 100)[:, :80]
    spread = torch.randn(80).expand(64, 80)
    swapped = torch.randn(4, 8, 16, 32)[:, ::2].permute(0, 2, 1, 3)
    tensors = [wide, spread, swapped]
    for family in ("normal", "steep", "spike"):
        made = families.change(tensors, family, known(tensors), 3)
        alone = [each.contiguous() for each in (wide, spread[:1], swapped)]
        copies = families.change(alone, family, known(alone), 3)
        for other, was, copy in zip(made, tensors, copies, strict=True):
            assert other.stride() == was.stride() and not torch.equal(other, was)
            assert torch.equal(other, copy.expand(other.shape)), family
    made = Slices.of(tensors, known(tensors)).change(tensors, 3)
    assert all(other.stride() == was.stride() for other, was in zip(made, tensors, strict=True))
    assert (made[1] == made[1][0]).all(), "expanded"
    positions = torch.arange(16).expand(4, 16)
    (_, other) = Constants.of([wide, positions], [False, True], {}).change([wide, positions], 1)
    assert other.stride() == (0, 1) and not torch.equal(other, positions)
    return len(tensors)


def clusters() -> int:
    """Rows are near one of two and nearly in order; of integers most are the same."""
    values, labels = torch.randn(8, 16, 32), torch.randint(0, 9, (200,))
    square = torch.randn(16, 16)
    experts = torch.stack([torch.randperm(8)[:2] for _ in range(64)])
    tensors = [values, labels, square + square.T, experts, torch.randn(40), values.mT]
    made = Clusters.of(tensors, known(tensors))
    assert sorted(made.known) == [0, 1, 5], made.known
    assert made.ways() == [0, 1, 2]
    for way in made.ways():
        made.way = way
        for seed in range(10):
            other, same, *_, swapped = made.change(tensors, seed)
            assert swapped.stride() == values.mT.stride()
            rows = other.view(-1, 32)
            apart = torch.cdist(rows, rows) < torch.cdist(values.view(-1, 32), rows).mean() / 2
            assert way == 2 or int(apart[0].sum()) > 30, (way, int(apart[0].sum()))
            assert way != 2 or torch.equal(
                rows.sort(-1).values, values.view(-1, 32).sort(-1).values
            )
            rise = rows[:, 24:].mean(-1) - rows[:, :8].mean(-1)
            if way == 0:
                assert (rise > 1).any() and (rise < -1).any() and (rise.abs() > 1).all()
            if way == 2:
                assert (rows.diff() >= 0).all() or (rows.diff() <= 0).all()
            assert int((same == same.mode().values).sum()) > 150
    return len(made.known)


def distinct() -> int:
    """What is there once stays there once."""
    experts = torch.stack([torch.randperm(8)[:2] for _ in range(64)])
    slots = torch.randperm(1024)[:256]
    for tensor in (experts, slots, torch.randperm(64)):
        found = known([tensor])
        for family in ("normal", "outliers"):
            for seed in range(20):
                (other,) = families.change([tensor], family, found, seed)
                rows = other.reshape(-1, other.shape[-1]).sort(-1).values
                assert (rows[:, 1:] != rows[:, :-1]).all(), (family, seed)
    labels = torch.randint(0, 400, (50, 100))
    (other,) = families.change([labels], "outliers", known([labels]), 1)
    assert not torch.equal(other, labels), "the control is changed"
    return 3


def constants() -> int:
    """What every draw has gets other values, in range and in order; what varies is left alone."""
    quantity = torch.randn(32, 64)
    causal = torch.ones(64, 64, dtype=torch.bool).tril()
    additive = torch.zeros(64, 64).masked_fill(~causal, float("-inf"))
    tensors = [
        quantity,
        torch.ones(32, 64, dtype=torch.bool),
        torch.zeros(32, 64),
        torch.arange(100),
        causal,
        additive,
        torch.full((1,), 0.07),
        torch.tensor([0, 2, 4, 5, 9, 11, 12, 14, 16]),
        torch.zeros(4, dtype=torch.int64),
        torch.full((16,), 128),
        torch.tensor(40),
        torch.randn(8, 8).tril().masked_fill(~causal[:8, :8], float("-inf")),
        torch.arange(0, 640, 64),
        torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3]),
    ]
    same = [False] + [True] * (len(tensors) - 1)
    made = Constants.of(tensors, same, known(tensors))
    assert sorted(made.known) == [*range(1, 8), 9, 10, 11, 13], made.known
    parts = set()
    for seed in range(60):
        for way in made.ways():
            made.way = way
            others = made.change(tensors, seed)
            _, ones, zeros, places, mask, added, number, offsets, *_ = others
            *_, lengths, length, bias, _, segments = others
            assert not torch.equal(number, tensors[6]) and torch.isfinite(zeros).all()
            assert torch.equal(tensors[3], places.sort().values)
            assert not torch.equal(places, tensors[3]), "other places, each once"
            assert (int(offsets[0]), int(offsets[-1])) == (0, 16)
            assert sorted(offsets.diff()) == sorted(tensors[7].diff()), "the same gaps"
            assert (int(segments[0]), int(segments[-1])) == (0, 3)
            assert torch.equal(segments, segments.sort().values), "in order"
            assert 64 <= int(lengths.min()) <= int(lengths.max()) <= 128
            assert 20 <= int(length) <= 40
            assert torch.equal(bias == float("-inf"), tensors[11] == float("-inf"))
            assert not torch.equal(bias, tensors[11])
            assert set(added.unique().tolist()) <= {0.0, float("-inf")}
            assert way != 1 or not (causal & ~mask).any(), "only more"
            assert way != 2 or not (mask & ~causal).any(), "only fewer"
            parts.add(int((zeros != 0).sum()))
            assert way or int((~ones).sum()) > 0
    assert parts == {64, 32 * 64}, "everywhere, or in one row"
    assert not Constants.of(tensors, [True] * len(tensors), known(tensors)).known
    return 60


torch.manual_seed(4)
print("looked at", all_are_tried(), structured_rows(), spikes(), steep(), sums())
print("looked at", slices(), slices_of_two_values(), slices_leave_alone(), constants())
print("looked at", views(), clusters(), distinct())
