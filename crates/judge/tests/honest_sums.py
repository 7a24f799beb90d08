"""Programs that sum in order in float32 stay within what the model of honest errors allows, also
where terms are equal. Raises AssertionError where one does not; the last line says how many were
tried.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy
import torch
from warpwright_oracle.rounding import Reordered
from warpwright_oracle.sums import bound, is_exact

HONEST_SLACK = 3
UNIT = 2.0**-24
ROWS = 2


def in_order(terms: torch.Tensor) -> torch.Tensor:
    """The sum of each row in float32, one term after the other."""
    rows = numpy.cumsum(terms.float().numpy(), -1, dtype=numpy.float32)
    return torch.from_numpy(rows[:, -1:].copy())


def softmax(x: torch.Tensor) -> torch.Tensor:
    terms = torch.exp(x - x.amax(-1, keepdim=True))
    return terms * (1 / in_order(terms))


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    shifted = x - x.amax(-1, keepdim=True)
    return shifted - torch.log(in_order(torch.exp(shifted)))


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    """In two passes, without a shift."""
    centred = x - in_order(x) / x.shape[-1]
    return centred * torch.rsqrt(in_order(centred * centred) / x.shape[-1] + 1e-5)


def norm(x: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(in_order(x * x))


def product(x: torch.Tensor) -> torch.Tensor:
    """By columns of ones and of halves."""
    return torch.cat([in_order(x), in_order(x * 0.7)], -1)


def columns(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([1.0, 0.7]).to(x).expand(x.shape[-1], 2)


PROGRAMS: dict[str, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    "sum": (lambda x: x.sum(-1, keepdim=True), in_order),
    "mean": (lambda x: x.mean(-1, keepdim=True), lambda x: in_order(x) / x.shape[-1]),
    "softmax": (lambda x: x.softmax(-1), softmax),
    "log_softmax": (lambda x: x.log_softmax(-1), log_softmax),
    "logsumexp": (
        lambda x: x.logsumexp(-1, keepdim=True),
        lambda x: (
            torch.log(in_order(torch.exp(x - x.amax(-1, keepdim=True)))) + x.amax(-1, keepdim=True)
        ),
    ),
    "layer_norm": (lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), layer_norm),
    "norm": (lambda x: x.norm(dim=-1, keepdim=True), norm),
    "product": (lambda x: x @ columns(x), product),
}


def kinds(n: int) -> dict[str, torch.Tensor]:
    """Rows by what they are."""
    normal, half = torch.randn(ROWS, n), torch.rand(ROWS, n) < 0.5
    return {
        "normal": normal,
        "sparse": normal * half,
        "equal but one": torch.where(torch.arange(n) == 0, 2.5, 0.7 + torch.rand(ROWS, 1)),
        "tenths": 0.1 * torch.randint(1, 6, (ROWS, n)),
        "nearly equal": 0.7 + torch.rand(ROWS, 1) + 1e-5 * normal,
        "offset": 4 + normal,
        "far off": 300 + normal,
    }


def programs() -> int:
    tried = 0
    for n in (768, 65536):
        for kind, rows in kinds(n).items():
            x = rows.float().contiguous()
            for name, (exactly, honestly) in PROGRAMS.items():
                truth = exactly(x.double())
                with Reordered():
                    model = exactly(x.double())
                size = truth.square().mean().sqrt()
                allowed = HONEST_SLACK * (model - truth).abs().max() + 16 * UNIT * size
                error = (honestly(x).double() - truth).abs().max()
                # A row whose spread is below its mean's error is compared by none.
                assert allowed > size / 4 or error <= allowed, (
                    name,
                    kind,
                    n,
                    error.item(),
                    allowed.item(),
                )
                tried += bool(allowed <= size / 4)
    return tried


def bounds() -> int:
    """Exactness is known, and so is what cancels."""
    whole = torch.randint(-3, 4, (4, 4096)).double()
    assert is_exact(whole, [1], UNIT) and not is_exact(whole + 0.1, [1], UNIT)
    assert not is_exact(whole * 2.0**20 + 2.0**20, [1], UNIT), "too large"
    with Reordered():
        assert torch.equal(whole.sum(1), whole.sum(1).round())
    assert bound(whole, 4096, UNIT).max() == 0
    equal = torch.full((1, 65536), 0.7, dtype=torch.float64)
    mixed = torch.where(torch.arange(65536) % 2 == 0, 0.7, -0.7).double().view(1, -1)
    assert bound(mixed, 65536, UNIT).item() < 1e-9 < 1e-2 < bound(equal, 65536, UNIT).item()
    some = bound(equal[:, ::8], 65536, UNIT)
    assert torch.allclose(some, bound(equal, 65536, UNIT), rtol=0.1), "some terms stand for all"
    return 3


torch.manual_seed(3)
print("tried", programs(), bounds())
