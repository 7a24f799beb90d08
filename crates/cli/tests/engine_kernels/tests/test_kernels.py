"""The engine's kernels, as the cpu device runs them, beside torch: to the last bit but where sums are taken in
another order. WARPWRIGHT_KERNELS is the library that they were built to."""

import ctypes
import os
import unittest

import torch
from torch.nn.functional import rms_norm, silu

KERNELS = ctypes.CDLL(os.environ["WARPWRIGHT_KERNELS"])
HALF = torch.bfloat16
EPSILON = 1e-6
WHOLE = ctypes.c_int


def call(name: str, *given: object) -> None:
    """Starts a kernel: tensors by address, ints as int, floats as float."""

    def as_c(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return ctypes.c_void_p(value.data_ptr())
        if isinstance(value, float):
            return ctypes.c_float(value)
        return ctypes.c_void_p(None) if value is None else value

    failed = getattr(KERNELS, f"{name}_launcher")(*map(as_c, given), None)
    assert failed == 0, failed


class Kernels(unittest.TestCase):
    """Each kernel, over widths that a warp does and does not divide."""

    def setUp(self) -> None:
        torch.manual_seed(3)

    def near(self, found: torch.Tensor, wanted: torch.Tensor) -> None:
        """Equal but for one in a hundred, where a sum's last bit decides how it is rounded."""
        differ = found != wanted
        self.assertLessEqual(differ.sum().item(), found.numel() // 100)
        torch.testing.assert_close(found.float(), wanted.float(), rtol=1e-2, atol=1e-5)

    def test_what_is_added_passes_its_norm(self) -> None:
        for rows, width in ((16, 192), (7, 512), (3, 64), (5, 1000)):
            stream = torch.randn(rows, width) * 3
            added = torch.randn(rows, width).to(HALF)
            weight = torch.rand(width) + 0.5
            for plus in (None, added):
                own, out = stream.clone(), torch.empty(rows, width, dtype=HALF)
                call("add_norm", own, plus, weight, out, WHOLE(rows), WHOLE(width), EPSILON)
                wanted = stream if plus is None else stream + plus
                self.assertTrue(torch.equal(own, wanted))
                self.near(out, rms_norm(wanted, [width], weight, EPSILON).to(HALF))

    def test_queries_and_keys_turn_and_keys_and_values_are_kept(self) -> None:
        for rows, heads, groups, width in (
            (16, 6, 2, 32),
            (5, 8, 8, 64),
            (3, 4, 1, 128),
            (2, 2, 2, 16),
        ):
            room, total = 20, heads + 2 * groups
            every = torch.randn(rows, total, width).to(HALF)
            norms = (torch.rand(heads + groups, width) + 0.5).to(HALF).float()
            angles = torch.randn(30, width // 2)
            cosines = torch.cat([angles.cos()] * 2, 1)
            sines = torch.cat([-angles.sin(), angles.sin()], 1)
            at = torch.randint(0, room, (rows,))
            queries = torch.zeros(rows, heads, width, dtype=HALF)
            keys = torch.zeros(rows, room, groups, width, dtype=HALF)
            values = torch.zeros_like(keys)
            tables = (norms, cosines, sines, at.double())
            sizes = map(WHOLE, (rows, heads, groups, width, room))
            call("turn_keep", every, *tables, queries, keys, values, *sizes, EPSILON)

            both = rms_norm(every[:, : heads + groups].float(), [width], None, EPSILON)
            both = (both * norms).to(HALF)
            cosine, sine = (table[at].unsqueeze(1).to(HALF) for table in (cosines, sines))
            turned = (both * cosine).addcmul(both.roll([width // 2], [2]), sine)
            self.near(queries, turned[:, :heads])
            wanted_keys, wanted_values = torch.zeros_like(keys), torch.zeros_like(values)
            each = torch.arange(rows)
            wanted_keys[each, at] = turned[:, heads:]
            wanted_values[each, at] = every[:, heads + groups :]
            self.near(keys, wanted_keys)
            self.assertTrue(torch.equal(values, wanted_values))

    def test_gates(self) -> None:
        for rows, inner in ((16, 640), (3, 1536), (5, 7)):
            both = (torch.randn(rows, 2 * inner) * 3).to(HALF)
            out = torch.empty(rows, inner, dtype=HALF)
            call("gate", both, out, ctypes.c_longlong(rows * inner), WHOLE(inner))
            gate, up = both.chunk(2, -1)
            self.near(out, silu(gate) * up)

    def test_draws_by_the_chances_it_is_given(self) -> None:
        for words in (2048, 1000, 33):
            for temperature, top_p in (
                (1.0, 1.0),
                (0.7, 1.0),
                (1.0, 0.95),
                (1.3, 0.5),
                (1.0, 1e-6),
            ):
                rows = 40
                logits = (torch.randn(rows, words) * torch.rand(rows, 1) * 6).to(HALF)
                chances = torch.rand(rows).double()
                chances[0] = 0.0
                drawn = torch.zeros(2, rows, dtype=torch.double)
                sizes = (WHOLE(rows), WHOLE(words))
                call("choose", logits, chances, drawn, *sizes, temperature, top_p)
                odds = (logits.float() / temperature).log_softmax(-1)
                if top_p < 1:
                    odds = kept(odds, top_p)
                sums = odds.double().exp().cumsum(-1)
                ids = (sums <= chances[:, None] * sums[:, -1:]).sum(-1)
                self.assertEqual(drawn[0].long().tolist(), ids.tolist())
                wanted = odds.gather(-1, ids[:, None])[:, 0].double()
                torch.testing.assert_close(drawn[1], wanted, rtol=0, atol=1e-5)

    def test_a_chance_of_nearly_one_draws_what_may_be_drawn(self) -> None:
        logits = torch.randn(4, 100).to(HALF)
        drawn = torch.zeros(2, 4, dtype=torch.double)
        chances = torch.full((4,), 1.0, dtype=torch.double)
        call("choose", logits, chances, drawn, WHOLE(4), WHOLE(100), 1.0, 0.3)
        odds = kept(logits.float().log_softmax(-1), 0.3)
        picked = odds.gather(-1, drawn[0].long()[:, None])[:, 0]
        self.assertTrue(picked.isfinite().all())
        torch.testing.assert_close(drawn[1], picked.double(), rtol=0, atol=1e-5)


def kept(odds: torch.Tensor, top_p: float) -> torch.Tensor:
    """Those of which all that are likelier add up to less than `top_p`."""
    rows = []
    for row in odds:
        likely = row.double().exp()
        likelier = (likely * (row > row[:, None])).sum(-1)
        rows.append(row.masked_fill(likelier >= top_p, -torch.inf).log_softmax(-1))
    return torch.stack(rows)
