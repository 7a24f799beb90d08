"""Runs a reference less exactly: in lower precision, or with the errors of another honest program.

Both modes modify the operands or results of operators while the reference runs. They act at the
dispatcher, so they cover every layer and function of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from .dispatch import OperatorMode
from .sums import SCALES, in_order, is_exact, of_product, one_sign

BITS = {
    torch.float64: (torch.int64, 52),
    torch.float32: (torch.int32, 23),
    torch.float16: (torch.int16, 10),
    torch.bfloat16: (torch.int16, 7),
}
"""Per dtype: the integer dtype of the same size, and the number of stored fraction bits."""
PRODUCTS = re.compile(
    r"b?mm|(b?add)?b?mm|h?sp?mm|(add)?mv|(v|vec|tensor)?dot|conv(olution)?(tbc|\dd)?|attention"
    r"|rnn|lstm|gru|cdist|(bi|tri)linear"
)
"""Words in the names of operators that multiply and sum. They match whole words: `cummin` has
none."""
SUMS = ("sum", "mean", "vector_norm", "loss")
SUMMING = re.compile("norm|softmax|conv|attention|embedding|rnn|lstm|gru")
"""Parts of the names of fused backward operators that sum."""
UNIT = 2.0**-24
"""Unit roundoff of float32, in which honest programs sum."""
DOUBLE_UNIT = 2.0**-53
"""Unit roundoff of float64."""
SPREAD = 0.3
"""Standard deviation of the error of one sum of n terms in order, in units of ``UNIT * sqrt(n)``
and the results' root mean square: 0.22 on uniform and 0.29 on normal operands of 4096 terms,
measured. The square root is Higham and Mary's (2019, SIAM J. Sci. Comput. 41, A2815). It assumes
that roundings cancel; see ``sums.py`` for those that do not."""
SHIFTED = 8.5
"""Factor by which a normalised value's error may exceed the variance's own relative error. A single
pass with a shift up to four standard deviations off loses a factor of 17; the square root halves
it."""
PARTED, PARTED_ZEROS = 2.0**-44, 2.0**-100
"""Random shifts that make equal elements differ: relative to the element, and absolute. They are
far smaller than an epsilon in float32 resolves."""
NEAR, MOST_FAR = 0.01, 8.0
"""Range of errors of an exponent that count: below the least they are ignored, and above the
largest they are clamped. They arise from rounding a product with a factor, and reach the least from
a float32 score of 167,772 on. Usual scores are smaller."""
FEW = 4096
"""Elements tested first: if any element of a tensor is not a float32 number, usually one of these
is not."""
PIECE = 1 << 24


def rounded(tensor: torch.Tensor, bits: dict[torch.dtype, int]) -> torch.Tensor:
    """A copy rounded to the nearest number with this many stored fraction bits, ties to even. The
    range of exponents is kept."""
    known = BITS.get(tensor.dtype)
    keep = bits.get(tensor.dtype)
    if known is None or keep is None or keep >= known[1]:
        return tensor
    integer, stored = known
    drop = stored - keep
    result = tensor.clone()
    for piece in _pieces(result):
        raw = piece.view(integer)
        up = (raw >> drop) & 1
        up += (1 << (drop - 1)) - 1 + raw
        up &= -(1 << drop)
        raw.copy_(torch.where(torch.isfinite(piece), up, raw))
    return result


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    dense = tensor.is_contiguous()
    flat = tensor.view(-1) if dense else tensor
    if not dense or flat.numel() <= PIECE:
        yield flat
        return
    yield from flat.split(PIECE)


def _name(func: Any) -> str:
    return str(func.overloadpacket.__name__)


def is_product(func: Any) -> bool:
    """Whether the operator multiplies and sums."""
    return any(PRODUCTS.fullmatch(word) for word in _name(func).split("_"))


class Rounded(OperatorMode):
    """Rounds the operands of products, as tensor cores do. Without ``products`` it rounds the
    results of all operators, as a program in that precision does."""

    def __init__(self, bits: dict[torch.dtype, int], *, products: bool) -> None:
        super().__init__()
        self.bits = bits
        self.only_products = products
        self.products = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        product = is_product(func)
        self.products += product
        if self.only_products:
            if product:
                args, kwargs = tree_map(self._lower, (args, kwargs))
            return func(*args, **kwargs)
        given = _storages((args, kwargs))
        if product:
            args, kwargs = tree_map(self._lower, (args, kwargs))
        results = func(*args, **kwargs)

        def lower(value: Any) -> Any:
            fresh = isinstance(value, torch.Tensor) and (
                value.untyped_storage()._cdata not in given
            )
            return self._lower(value) if fresh else value

        return tree_map(lower, results)

    def _lower(self, value: Any) -> Any:
        return rounded(value, self.bits) if isinstance(value, torch.Tensor) else value


class Reordered(OperatorMode):
    """Adds to each product and sum the error of float32 in an unlucky order, ``times`` as large.
    For references in float64. With ``everywhere`` every inexact operator additionally errs by as
    many units of roundoff. Without ``one_sign`` all roundings cancel."""

    def __init__(
        self, times: float = 1.0, *, everywhere: bool = False, one_sign: bool = True
    ) -> None:
        super().__init__()
        self.one_sign = one_sign
        self.times = times
        self.unit = times * UNIT
        self.everywhere = everywhere

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = _storages((args, kwargs)) if self.everywhere else set()
        results = func(*args, **(kwargs or {}))
        self._reorder(func, args, results)
        if self.everywhere:
            for leaf in tree_leaves(results):
                if isinstance(leaf, torch.Tensor) and not _storages(leaf) & given:
                    _blur(leaf, self.unit)
        return results

    def _reorder(self, func: Any, args: Any, results: Any) -> None:
        name = _name(func)
        errs = Erring(self.unit, self.times, one_sign=self.one_sign)
        first = results[0] if isinstance(results, (tuple, list)) and results else results
        if not args or not isinstance(first, torch.Tensor) or not first.numel():
            return
        if "backward" in name:
            if SUMMING.search(name):
                errs.differentiated(args, results)
        elif "layer_norm" in name or "group_norm" in name or "batch_norm" in name:
            errs.normalised(name, args, results)
        elif name in ("var", "std", "var_mean", "std_mean"):
            errs.varied(name, args, first)
        elif "softmax" in name or name == "logsumexp":
            errs.shared(name, args, first)
        elif first.is_floating_point() and (terms := _terms(func, args, results)):
            errs.summed(func, args, first, terms)
            if "attention" in name:
                errs.scored(args, first)


class Erring:
    """Adds honest errors to float64 results. They are those of a format whose unit roundoff is
    ``times`` that of float32; for ``times`` below 1 the roundings are those of float64, scaled."""

    def __init__(self, unit: float, times: float, *, one_sign: bool = True) -> None:
        self.unit = unit
        # Roundings with one sign do not scale with the unit. So they are measured at a format's own
        # unit and multiplied afterwards.
        self.grid = UNIT if times >= 1 else DOUBLE_UNIT
        self.often = unit / self.grid if one_sign else 0.0

    def same_sign(
        self, given: torch.Tensor, dims: list[int], *, scaled: bool = False
    ) -> torch.Tensor:
        """``one_sign`` of the terms, multiplied; ``scaled``: the terms are known up to a factor."""
        scales = SCALES if scaled else (1.0,)
        return one_sign(given.double(), dims, self.grid, scales) * self.often

    def summed(self, func: Any, args: Any, first: torch.Tensor, terms: float) -> None:
        """Errors of a product, or of a sum of ``terms`` terms per result."""
        given = args[0]
        plain = _name(func) in ("sum", "mean", "cumsum") and given.dtype == torch.float64
        if plain and given.numel() and is_exact(given, _dims(args[1:2], given), self.grid):
            return
        # Per row: rows may differ much in size.
        size = first.square().mean(-1, keepdim=True).sqrt() if first.dim() else first.abs()
        noise = _unlucky(first)
        alike = self._alike(func, args, first, size)
        signed = noise.sign() * alike if alike is not None else None
        noise *= (size * (SPREAD * self.unit * terms**0.5)).float()
        if signed is not None:
            noise = noise + signed
        first.add_(torch.nan_to_num_(noise, 0.0, 0.0, 0.0))

    def differentiated(self, args: Any, results: Any) -> None:
        """Errors of a fused backward operator, which sums along its rows or over them."""
        given = max(t.numel() for t in tree_leaves(args) if isinstance(t, torch.Tensor))
        for result in tree_leaves(results):
            fits = isinstance(result, torch.Tensor) and result.dtype == torch.float64
            if not fits or not result.numel():
                continue
            along = result.shape[-1] if result.dim() else 1
            terms = in_order(max(along, given / result.numel()))
            size = result.square().mean(-1, keepdim=True).sqrt() if result.dim() else result.abs()
            noise = _unlucky(result) * (size * (SPREAD * self.unit * terms**0.5)).float()
            result.add_(torch.nan_to_num_(noise, 0.0, 0.0, 0.0))

    def _alike(
        self, func: Any, args: Any, first: torch.Tensor, size: torch.Tensor
    ) -> torch.Tensor | None:
        """The error of each result from roundings of one sign, where the terms are known."""
        name = _name(func)
        if is_product(func):
            pair = [a for a in args if isinstance(a, torch.Tensor) and a.dim() >= 2][-2:]
            if "mm" not in name or len(pair) < 2 or pair[0].dtype != torch.float64:
                return None
            if pair[0].shape[-1] != pair[1].shape[-2]:
                return None
            return size * (of_product(*pair, self.grid) * self.often)
        given = args[0]
        if not isinstance(given, torch.Tensor) or given.dtype != torch.float64 or not given.numel():
            return None
        if name == "cumsum":
            # The error of the whole row; partial sums get a share in proportion to their size.
            error = self.same_sign(given, [args[1]]).unsqueeze(args[1])
            return error * first.abs() / first.abs().amax(args[1], keepdim=True)
        if name in ("sum", "mean"):
            dims = _dims(args[1:2], given)
            error = self.same_sign(given, dims)
            error = error / (given.numel() / max(error.numel(), 1)) if name == "mean" else error
        elif "vector_norm" in name:
            order = args[1] if len(args) > 1 else 2
            if not isinstance(order, (int, float)) or not 0 < order < float("inf"):
                return None
            powers = given.abs().pow(order)
            error = self.same_sign(powers, _dims(args[2:3], given))
            error = error.view_as(first) * first / (order * first.abs().pow(order))
        elif name == "mse_loss" and not first.dim():
            apart = (given - args[1]).square()
            error = self.same_sign(apart, _dims((), apart))
            error = error / (apart.numel() if len(args) < 3 or args[2] == 1 else 1)
        else:
            return None
        return error.reshape(first.shape) if error.numel() == first.numel() else None

    def varied(self, name: str, args: Any, first: torch.Tensor) -> None:
        """Errors of a variance or a standard deviation."""
        given = args[0]
        error = SHIFTED * SPREAD * self.unit * _root_of_terms(given, first)
        noise = _unlucky(first).double()
        dims = _dims(args[1:2], given)
        squares = (given - given.mean(dims, keepdim=True)).square()
        alike = self.same_sign(squares, dims, scaled=True) / squares.sum(dims)
        alike = alike.reshape(first.shape).nan_to_num_(0.0, 0.0, 0.0) / 2
        # The square root halves the relative error of a variance.
        often = 2 if "var" in name else 1
        first.mul_(1 + often * (error * noise + noise.sign() * alike))

    def shared(self, name: str, args: Any, first: torch.Tensor) -> None:
        """Errors from a softmax's sum in order: they affect all elements that it divides, or its
        logarithm."""
        given = args[0]
        if first.dtype != torch.float64:
            return
        if name == "logsumexp":
            along = given.numel() / first.numel()
            dims = _dims(args[1:2], given)
            shares = (given - given.logsumexp(dims, keepdim=True)).exp()
            noise = _unlucky(first).double()
            alike = self.same_sign(shares, dims, scaled=True).reshape(first.shape)
            first.add_(noise * (SPREAD * self.unit * in_order(along) ** 0.5) + noise.sign() * alike)
            return
        dim = args[1] if len(args) > 1 and isinstance(args[1], int) else -1
        if not first.dim():
            return
        error = SPREAD * self.unit * in_order(first.shape[dim]) ** 0.5
        noise = _unlucky(first.narrow(dim, 0, 1)).double()
        log = "log" in name
        alike = self.same_sign(first.exp() if log else first, [dim], scaled=True).unsqueeze(dim)
        noise = noise * error + noise.sign() * alike
        if log:
            first.add_(noise)
        else:
            scores = given.abs().nan_to_num(0.0, 0.0, 0.0)  # masked scores do not count
            off = self._exponents(scores.amax(dim, keepdim=True).double())
            first.mul_((1 + noise) * (off * noise.sign()).exp())

    def scored(self, args: Any, first: torch.Tensor) -> None:
        """Errors from large scores in a fused attention operator, for the largest possible
        scores."""
        query, key = args[0], args[1]
        if query.dtype == torch.float64 and query.dim() > 2 and query.numel() and key.numel():
            most = query.norm(dim=-1).amax() * key.norm(dim=-1).amax() / query.shape[-1] ** 0.5
            off = self._exponents(most.nan_to_num(0.0, 0.0, 0.0))
            first.mul_((off * _unlucky(first.narrow(-1, 0, 1)).double().sign()).exp())

    def _exponents(self, scores: torch.Tensor) -> torch.Tensor:
        """Errors of the exponents of scores this large. A program that scales scores by a factor
        rounds its product with the maximum once."""
        far = scores * self.unit
        return torch.where(far > NEAR, far.clamp_max(MOST_FAR), 0.0)

    def normalised(self, name: str, args: Any, results: Any) -> None:
        """Errors of normalised values: from a variance in one pass, per group, and from the sum of
        values far from zero, which gives the mean."""
        values, groups = results[0], results[1]
        given, by_channel = args[0], "batch_norm" in name
        count = given.numel() / max(groups.numel(), 1)
        if not groups.numel() or not (by_channel or values.is_contiguous()):
            return  # uses running statistics
        # Per group: the reduced dimensions, and the shape of a group's statistics in the values.
        dims = [d for d in range(given.dim()) if d != 1] if by_channel else [1]
        lines = given if by_channel else given.reshape(groups.numel(), -1)
        mean = lines.mean(dims, keepdim=True)
        squares = (lines - mean).square_()
        alike = self.same_sign(squares, dims, scaled=True) / (2 * squares.sum(dims))
        noise = _unlucky(groups.reshape(-1)).double()
        error = SHIFTED * SPREAD * self.unit * _root_of_terms(values, groups)
        factor = 1 + error * noise + noise.sign() * alike.nan_to_num_(0.0, 0.0, 0.0)
        off = SPREAD * self.unit * in_order(count) ** 0.5 * mean.reshape(-1).abs()
        off = (off + self.same_sign(lines, dims) / count) * results[2].reshape(-1)
        off = off.nan_to_num_(0.0, 0.0, 0.0) * _unlucky(groups.reshape(-1)).sign()
        if by_channel:
            channels, weight = values, args[1]
            shape: tuple[int, ...] = (1, -1, *(1,) * (values.dim() - 2))
            factor, off = factor.view(shape), off.view(shape)
        elif "group_norm" in name:
            channels, weight = values.view(*values.shape[:2], -1), args[1]
            each = values.shape[0] * values.shape[1] // groups.numel()
            shape = (1, -1, 1)
            factor, off = (
                t.repeat_interleave(each).view(*values.shape[:2], 1) for t in (factor, off)
            )
        else:
            channels, weight = values.view(groups.numel(), -1), args[2]
            shape = (1, -1)
            factor, off = factor.view(-1, 1), off.view(-1, 1)
        channels.mul_(factor)
        channels.add_(off if weight is None else off * weight.reshape(shape))


def _dims(given: Any, tensor: torch.Tensor) -> list[int]:
    """The dimensions that an argument names, or all."""
    named = given[0] if given else None
    named = [named] if isinstance(named, int) else list(named or ())
    return named or list(range(tensor.dim()))


def _storages(values: Any) -> set[int]:
    tensors = (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
    return {tensor.untyped_storage()._cdata for tensor in tensors}


def _blur(tensor: torch.Tensor, unit: float) -> None:
    """Perturbs each element by up to ``unit`` of itself. Does nothing if all are float32 numbers:
    then the operator counts as exact, like a comparison, a copy or a rounding."""
    if tensor.dtype != torch.float64 or not tensor.is_contiguous():
        return
    # The first few are usually sufficient.
    few = tensor.view(-1)[:FEW]
    if all(torch.equal(piece, piece.float().double()) for piece in (few, *_pieces(tensor))):
        return
    for piece in _pieces(tensor):
        piece.addcmul_(piece, _noise(piece), value=unit)


def _noise(like: torch.Tensor) -> torch.Tensor:
    """Uniform numbers from -1 to 1, in float32."""
    return torch.empty_like(like, dtype=torch.float32).uniform_(-1, 1)


def _unlucky(like: torch.Tensor) -> torch.Tensor:
    """Normal numbers in float32, at least one standard deviation from zero. Otherwise a few results
    could all be nearly exact by coincidence, which an honest program's results need not be."""
    noise = torch.randn(like.shape, dtype=torch.float32, device=like.device)
    return torch.where(noise < 0, noise.clamp_max(-1.0), noise.clamp_min(1.0))


def _root_of_terms(given: torch.Tensor, results: torch.Tensor) -> float:
    return in_order(given.numel() / max(results.numel(), 1)) ** 0.5


def _terms(func: Any, args: Any, results: Any) -> float:
    """The number of terms that each result sums in order; zero for other operators."""
    given = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor) and a.dim()]
    if not given:
        return 0
    name = _name(func)
    if "conv" in name and len(given) > 1:
        weight = given[1]
        return max(weight.numel() / max(weight.shape[0], 1), 1)
    if is_product(func):
        return max(a.shape[-1] for a in given[-2:])
    if any(part in name for part in SUMS) and isinstance(results, torch.Tensor):
        along = args[1] if "cumsum" in name and len(args) > 1 else None
        most = given[0].numel() / max(results.numel(), 1)
        if isinstance(along, int):
            most = given[0].shape[along]
        return in_order(most)
    return 0


def part_equals(tensor: torch.Tensor) -> None:
    """Makes equal float64 elements differ by too little to matter otherwise."""
    for piece in _pieces(tensor):
        piece.mul_(1 + PARTED * _noise(piece).double()).add_(PARTED_ZEROS * _noise(piece).double())


def jitter(tensor: torch.Tensor, zeros: float, times: float = 1.0) -> None:
    """Perturbs each element by up to ``times`` its own float32 unit roundoff, and zeros by up to
    that of ``zeros``, within the tensor's range. No program can be expected to be more accurate
    than its inputs."""
    unit = times * UNIT
    low, high = torch.aminmax(tensor)
    for piece in _pieces(tensor):
        noise = _noise(piece)
        if zeros:
            piece.copy_(torch.where(piece == 0, unit * zeros * noise, piece * (1 + unit * noise)))
        else:
            piece.addcmul_(piece, noise, value=unit)
        piece.clamp_(low, high)
