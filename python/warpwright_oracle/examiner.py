"""What speaks against a task, found out by running its reference: what it ignores, what it always
gives, and which wrong answers would pass for right. Numbers only: what follows from them the judge
decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .distance import distance, pieces
from .families import NORMAL, OWN
from .reference import seed_everything
from .sizes import forward
from .tensors import as_reals, flatten, to_double, unflatten

if TYPE_CHECKING:
    from .oracle import Oracle

MOVED = 0.3
"""Relative size of the change of a parameter."""
STRETCHES = (64, 4)
"""How many times what an honest program errs is put on, in turn, to see whether the results move as
many times as far. A jump is seen in as many draws more; the smaller one tells what smooth results
do, and shows those that jump in every draw."""
WEIGHTS = ("init", "other")
"""Which weights are taken in turn, for as many draws as there are stretches. Those that a model is
made with hide jumps: what a batch norm by itself gives, an input scaled by 0.999995, is everywhere
as far from a multiple of that input."""
INPUT = "input "
"""How the names of answers begin that are an input."""
NEAR_ZERO = 8
"""An input whose least magnitude is below so many times what is left of its size for one of its
elements may be zero as well: draws of the usual generators have an exact zero in 2^24."""
FARTHEST = torch.finfo(torch.float64).max
"""Farther than anything is allowed to be, and a number that JSON has."""
SEEDS = 0x5EED_4000
"""What is added to a seed for other draws than its own."""


class Examiner:
    """Looks at one task's reference on its own inputs."""

    def __init__(self, oracle: Oracle, tolerances: list[tuple[float, float]], weights: str) -> None:
        self.oracle = oracle
        self.tolerances = tolerances
        """Per output, absolute and relative."""
        self.model = oracle.models[weights]

    def examine(self, seed: int) -> dict[str, Any]:
        """Shares are of the elements of the output where it is largest. ``finite`` and ``common``
        (equal to the most common value) are per output, of the worse of two draws; ``inputs`` and
        ``parameters`` say how much of the outputs changes beyond the tolerance with each, by name;
        ``counterfeits`` how much of each wrong answer is wrong."""
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
        """The same in few calls: of no single input or parameter, and of few wrong answers. With
        ``signed`` the family ``normal`` is allowed, and an input must be the answer there too: on
        positive numbers ``relu`` returns its input."""
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
        """What few draws show, looked for on so many others than the seed's own and with other
        weights, until one shows it for certain. ``finite`` is the least share of finite elements
        per output; ``stretched`` per output and draw the largest error of a program that errs
        ``STRETCHES`` times as much as an honest one, over that, as if the outputs were as large as
        on the seed's own draw. There must be a truth in float64."""
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
        """The share of each output that is finite on further inputs, with a zero in each that may
        have one, and the errors there, for outputs of these sizes."""
        given = self.oracle.draw(seed + SEEDS + 1 + number, OWN)
        self._zero(given, number)
        turn, step = divmod(number, len(STRETCHES))
        truth, stretch, weights = self.oracle.truth, STRETCHES[step], WEIGHTS[turn % len(WEIGHTS)]
        exact = plainly(truth.under(contextlib.nullcontext(), to_double(given), weights))
        if not exact or len(exact) != len(sizes):
            return [1.0] * len(sizes), [FARTHEST] * len(sizes)
        shares = [finite(tensor) for tensor in exact]
        seed_everything(number + 2)  # or all draws would err alike
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
        """Puts a zero into each input that may have one."""
        tensors: list[torch.Tensor] = []
        flatten(given, tensors)
        for index, traits in self.oracle.traits.items():
            flat = tensors[index].as_strided((tensors[index].numel(),), (1,))
            if flat.abs().min().item() <= NEAR_ZERO * traits.size / flat.numel():
                flat[(number * 0x9E3779B1) % flat.numel()] = 0.0

    def _outputs(self, inputs: Any) -> list[torch.Tensor]:
        """The tensors of the outputs, and of the inputs that the reference changes."""
        outputs, _, copies = forward(self.model, inputs, 1)
        tensors: list[torch.Tensor] = []
        flatten(outputs, tensors)
        return [plain(tensor) for tensor in tensors + self.oracle.after(copies)]

    def _wrong(self, truth: list[torch.Tensor], answer: list[torch.Tensor]) -> float:
        if [t.shape for t in truth] != [t.shape for t in answer]:
            return 1.0
        triples = zip(truth, answer, self.tolerances, strict=True)
        return max((beyond(t, a, allowed) for t, a, allowed in triples), default=0.0)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as pairs of real numbers, one of eight-bit numbers in float32: what is asked
    of outputs here is not implemented for them."""
    reals = as_reals(tensor)
    return reals.float() if reals.is_floating_point() and reals.element_size() == 1 else reals


def plainly(tensors: list[torch.Tensor] | None) -> list[torch.Tensor] | None:
    """The same of several, if there are any."""
    return tensors and [plain(tensor) for tensor in tensors]


def apart(given: torch.Tensor, truth: torch.Tensor) -> tuple[float, float]:
    """The largest difference and the truth's ``size``; the difference is ``FARTHEST`` for integers
    where any differs, and where not the same elements are finite."""
    if not truth.is_floating_point():
        return (0.0 if torch.equal(given, truth) else FARTHEST), 1.0
    found = distance(given, truth)
    return (found.error if found.agrees else FARTHEST), found.rms


def size(tensor: torch.Tensor) -> float:
    """The root mean square; one for integers."""
    return distance(tensor, tensor).rms if tensor.is_floating_point() else 1.0


def beyond(truth: torch.Tensor, answer: torch.Tensor, allowed: tuple[float, float]) -> float:
    """The share of elements of an answer that are outside a tolerance, or finite where the truth is
    not, or not where it is."""
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
    """A parameter with other values for a while."""
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
    """What a candidate might return that does not look at its inputs."""
    yield "zeros", [torch.zeros_like(t) for t in truth]
    yield "its mean", [_filled(t) for t in truth]
    yield "the previous result", previous


def handed_back(truth: list[torch.Tensor], given: Any) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Each of the inputs as the answer, where it has as many elements."""
    taken: list[torch.Tensor] = []
    flatten(given, taken)
    for i, tensor in enumerate(taken):
        if truth and all(t.numel() == tensor.numel() for t in truth):
            yield f"{INPUT}{i}", [tensor.reshape(t.shape).to(t.dtype) for t in truth]


def counterfeits(
    truth: list[torch.Tensor], previous: list[torch.Tensor], taken: list[torch.Tensor]
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """What a candidate might return that computes nothing, or less than it should."""
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
