"""Examines a task for degeneracy by running its reference: inputs without effect, constant outputs,
and wrong answers that would pass. Returns numbers only; the judge decides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .distance import distance, pieces
from .families import NORMAL, OWN
from .plain import plain, plainly, workable
from .reference import seed_everything
from .sizes import forward
from .tensors import flatten, to_double, unflatten

if TYPE_CHECKING:
    from .oracle import Oracle

MOVED = 0.3
"""Relative size of the perturbation of a parameter."""
STRETCHES = (64, 4)
"""Factors by which the honest error is amplified, in turn, to test whether the results' errors grow
in proportion. The larger factor makes discontinuities proportionally more likely to show. The
smaller one measures smooth results, and shows results that jump for every seed."""
WEIGHTS = ("init", "other")
"""Weights that are used in turn; each serves as many seeds as there are stretches. Initial weights
hide discontinuities: if a batch norm by itself returns its input scaled by 0.999995, the result is
everywhere equally far from a multiple of that input."""
INPUT = "input "
"""Prefix of the names of counterfeits that return an input."""
NEAR_ZERO = 8
"""An input may also contain zeros if its least magnitude is below this many times its size divided
by its number of elements: the usual generators return an exact zero once in 2^24 numbers."""
FARTHEST = torch.finfo(torch.float64).max
"""Larger than any tolerance, and representable in JSON."""
SEEDS = 0x5EED_4000
"""Offset added to a seed for further inputs."""


class Examiner:
    """Examines one task's reference on its own inputs."""

    def __init__(self, oracle: Oracle, tolerances: list[tuple[float, float]], weights: str) -> None:
        self.oracle = oracle
        self.tolerances = tolerances
        """Absolute and relative tolerance per output."""
        self.model = oracle.models[weights]

    def examine(self, seed: int) -> dict[str, Any]:
        """Measures shares of elements, of the output where the share is largest. ``finite`` and
        ``common`` (equal to the most common value) are per output, for the worse of two samples.
        ``inputs`` and ``parameters``: by name, the share of the outputs that changes beyond the
        tolerance when it changes. ``counterfeits``: the wrong share of each wrong answer."""
        given = self.oracle.draw(seed, OWN)
        taken: list[torch.Tensor] = []
        tree = flatten(given, taken)
        truth = self._outputs(given)
        other = self.oracle.draw(seed + SEEDS, OWN)
        others: list[torch.Tensor] = []
        flatten(other, others)
        changed = {}
        for i, tensor in enumerate(others):
            swapped = [tensor if k == i else t for k, t in enumerate(taken)]
            changed[str(i)] = self._wrong(truth, self._outputs(unflatten(tree, swapped)))
        parameters = {}
        for name, parameter in self.model.named_parameters():
            if parameter.numel():
                with moved(parameter, seed):
                    parameters[name] = self._wrong(truth, self._outputs(given))
        previous = self._outputs(other)
        answers = counterfeits(truth, previous, taken)
        wrong = {name: self._wrong(truth, answer) for name, answer in answers}
        self.oracle.settle()
        return {
            "finite": [min(map(finite, pair)) for pair in zip(truth, previous, strict=True)],
            "common": [max(map(common, pair)) for pair in zip(truth, previous, strict=True)],
            "inputs": changed,
            "parameters": parameters,
            "counterfeits": wrong,
        }

    def glance(self, seed: int, signed: bool) -> dict[str, Any]:
        """The same in few calls: skips single inputs and parameters, and tries few wrong answers.
        ``signed`` says that the family ``normal`` is allowed; an input then must be the answer on
        that family too. On positive numbers ``relu`` returns its input."""
        given = self.oracle.draw(seed, OWN)
        truth = self._outputs(given)
        previous = self._outputs(self.oracle.draw(seed + SEEDS, OWN))
        answers = [*plain_counterfeits(truth, previous), *handed_back(truth, given)]
        wrong = {name: self._wrong(truth, answer) for name, answer in answers}
        copies = [name for name in wrong if name.startswith(INPUT) and wrong[name] <= 0]
        if copies and signed:
            given = self.oracle.draw(seed + SEEDS + 1, NORMAL)
            truth = self._outputs(given)
            for name, answer in handed_back(truth, given):
                wrong[name] = max(wrong[name], self._wrong(truth, answer))
        self.oracle.settle()
        return {
            "finite": [min(map(finite, pair)) for pair in zip(truth, previous, strict=True)],
            "common": [max(map(common, pair)) for pair in zip(truth, previous, strict=True)],
            "inputs": {},
            "parameters": {},
            "counterfeits": wrong,
        }

    def redraw(self, seed: int, draws: int) -> dict[str, Any]:
        """Searches ``draws`` further samples, with other weights in turn, for defects that few
        samples show. Stops at the first certain one. Requires a float64 truth.

        ``finite``: the least share of finite elements per output. ``stretched``: per output and
        sample, the largest error of a program that errs ``STRETCHES`` times as much as an honest
        one, divided by that factor, and scaled to the outputs' size on the seed's own sample.
        """
        sizes = [size(tensor) for tensor in self._outputs(self.oracle.draw(seed, OWN))]
        least = [1.0] * len(sizes)
        stretched: list[list[float]] = [[] for _ in sizes]
        for number in range(draws):
            shares, errors = self.stretched(seed, number, sizes)
            least = [min(pair) for pair in zip(least, shares, strict=True)]
            for known, error in zip(stretched, errors, strict=True):
                known.append(error)
            if min(least, default=1.0) < 1 or FARTHEST in errors:
                break
        self.oracle.settle()
        return {"finite": least, "stretched": stretched}

    def stretched(
        self, seed: int, number: int, sizes: list[float]
    ) -> tuple[list[float], list[float]]:
        """The finite share of each output on further inputs, and the errors there, scaled to
        outputs of these sizes. Each input that may contain a zero gets one."""
        given = self.oracle.draw(seed + SEEDS + 1 + number, OWN)
        self._zero(given, number)
        turn, step = divmod(number, len(STRETCHES))
        truth, stretch, weights = self.oracle.truth, STRETCHES[step], WEIGHTS[turn % len(WEIGHTS)]
        exact = plainly(truth.under(contextlib.nullcontext(), to_double(given), weights))
        if not exact or len(exact) != len(sizes):
            return [1.0] * len(sizes), [FARTHEST] * len(sizes)
        shares = [finite(tensor) for tensor in exact]
        seed_everything(number + 2)  # else all samples would have equal errors
        moved = plainly(truth.astray(given, stretch, weights, everywhere=True))
        if not moved or [t.shape for t in moved] != [t.shape for t in exact]:
            return shares, [FARTHEST] * len(exact)
        errors = []
        for far, near, wanted in zip(moved, exact, sizes, strict=True):
            error, found = apart(far, near)
            if error < FARTHEST:
                error = min(error / stretch * (wanted / found if found else 1.0), FARTHEST)
            errors.append(error)
        return shares, errors

    def _zero(self, given: Any, number: int) -> None:
        """Writes a zero into each input that may contain one."""
        tensors: list[torch.Tensor] = []
        flatten(given, tensors)
        for index, traits in self.oracle.traits.items():
            flat = tensors[index].as_strided((tensors[index].numel(),), (1,))
            if workable(flat).abs().min().item() <= NEAR_ZERO * traits.size / flat.numel():
                flat[(number * 0x9E3779B1) % flat.numel()] = 0.0

    def _outputs(self, inputs: Any) -> list[torch.Tensor]:
        """The tensors of the outputs, and the inputs that the reference changes."""
        outputs, _, copies = forward(self.model, inputs, 1)
        tensors: list[torch.Tensor] = []
        flatten(outputs, tensors)
        return [plain(tensor) for tensor in tensors + self.oracle.after(copies)]

    def _wrong(self, truth: list[torch.Tensor], answer: list[torch.Tensor]) -> float:
        if [t.shape for t in truth] != [t.shape for t in answer]:
            return 1.0
        triples = zip(truth, answer, self.tolerances, strict=True)
        return max((beyond(t, a, allowed) for t, a, allowed in triples), default=0.0)


def apart(given: torch.Tensor, truth: torch.Tensor) -> tuple[float, float]:
    """The largest difference, and the truth's ``size``. The difference is ``FARTHEST`` for integers
    that differ, and where the sets of finite elements differ."""
    if not truth.is_floating_point():
        return (0.0 if torch.equal(given, truth) else FARTHEST), 1.0
    found = distance(given, truth)
    return (found.error if found.agrees else FARTHEST), found.rms


def size(tensor: torch.Tensor) -> float:
    """The root mean square; one for integers."""
    return distance(tensor, tensor).rms if tensor.is_floating_point() else 1.0


def beyond(truth: torch.Tensor, answer: torch.Tensor, allowed: tuple[float, float]) -> float:
    """The share of elements of an answer that are outside a tolerance, or finite where the truth is
    not, or vice versa."""
    wrong, (absolute, relative) = 0, allowed
    for mine, exact in pieces(answer, truth):
        if exact.is_floating_point():
            mine, exact = mine.double(), exact.double()
            far = (mine - exact).abs() > absolute + relative * exact.abs()
            there = torch.isfinite(exact)
            far = torch.where(there & torch.isfinite(mine), far, there != torch.isfinite(mine))
        else:
            far = mine != exact
        wrong += int(far.sum().item())
    return wrong / max(truth.numel(), 1)


def finite(tensor: torch.Tensor) -> float:
    """The share of finite elements."""
    if not tensor.is_floating_point() or not tensor.numel():
        return 1.0
    return sum(int(torch.isfinite(t).sum().item()) for (t,) in pieces(tensor)) / tensor.numel()


def common(tensor: torch.Tensor) -> float:
    """The share of elements that equal the most common one of a sample."""
    if tensor.numel() < 2:
        return 0.0
    flat = tensor.reshape(-1)
    step = max(1, flat.numel() // 4096)
    _, counts = torch.unique(flat[::step], return_counts=True)
    return counts.max().item() / counts.sum().item()


@contextlib.contextmanager
def moved(parameter: torch.nn.Parameter, seed: int) -> Iterator[None]:
    """Perturbs a parameter, and restores it."""
    kept = parameter.detach().clone()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        noise = torch.randn(parameter.shape, generator=generator).to(parameter)
        size = parameter.float().square().mean().sqrt().item() or 1.0
        parameter.add_(noise, alpha=MOVED * size)
    try:
        yield
    finally:
        with torch.no_grad():
            parameter.copy_(kept)


def plain_counterfeits(
    truth: list[torch.Tensor], previous: list[torch.Tensor]
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Answers of a candidate that ignores its inputs."""
    yield "zeros", [torch.zeros_like(t) for t in truth]
    yield "its mean", [_filled(t) for t in truth]
    yield "the previous result", previous


def handed_back(truth: list[torch.Tensor], given: Any) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Each input as the answer, where it has as many elements."""
    taken: list[torch.Tensor] = []
    flatten(given, taken)
    for i, tensor in enumerate(taken):
        if truth and all(t.numel() == tensor.numel() for t in truth):
            yield f"{INPUT}{i}", [tensor.reshape(t.shape).to(t.dtype) for t in truth]


def counterfeits(
    truth: list[torch.Tensor], previous: list[torch.Tensor], taken: list[torch.Tensor]
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Answers of a candidate that computes nothing, or too little."""
    yield from plain_counterfeits(truth, previous)
    yield from handed_back(truth, taken)
    if any(t.dtype == torch.float32 for t in truth):
        yield "half precision", [_rounded(t) for t in truth]
    if any(t.numel() > 1 for t in truth):
        yield "the first half only", [_half(t) for t in truth]
    if any(t.dim() and t.shape[0] > 1 for t in truth):
        yield "rows in another order", [t.roll(1, 0) if t.dim() else t for t in truth]
    yield "memory that nobody wrote", [_poison(t) for t in truth]


def _filled(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return torch.ones_like(tensor)
    return torch.full_like(tensor, torch.nan_to_num(tensor.double(), 0.0, 0.0, 0.0).mean().item())


def _rounded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half().float() if tensor.dtype == torch.float32 else tensor


def _half(tensor: torch.Tensor) -> torch.Tensor:
    half = tensor.clone()
    flat = half.view(-1) if half.is_contiguous() else half
    if tensor.dim():
        flat[(flat.shape[0] + 1) // 2 :] = 0
    return half


def _poison(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point():
        return torch.full_like(tensor, float("nan"))
    seed_everything(1)
    return torch.randint(0, 2, tensor.shape, device=tensor.device).to(tensor.dtype)
