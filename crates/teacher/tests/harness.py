"""The torch side of the teacher's conformance test.

    harness.py trace --seed S --count N [--family F]   print N cases: name, model, graph
    harness.py trace --files FOLDER                    the same for the references in a folder
    harness.py trace --files FOLDER --into OUT         each graph alone, to OUT/name.json
    harness.py compare FOLDER                          run what was built there against torch

A case is an operator (or a small composition) with a shape, an element type and a memory layout,
drawn so that pairs of properties are covered evenly. The comparison is the judge's `strict` in
miniature: error against a float64 run, scaled to eager's own.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import importlib.util
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch

FLOATS = ["float32", "float16", "bfloat16", "float64"]
SHAPES = [(7,), (64, 96), (3, 5, 32), (2, 8, 6, 10), (1, 130), (33, 1), (4, 1, 17), (16, 2048)]
LAYOUTS = ["contiguous", "transposed", "sliced", "offset"]

UNARY = """x.abs()|-x|x.sign()|x.abs().sqrt()|(x.abs() + 1).rsqrt()|(x.abs() + 1).reciprocal()|x.exp()
(x * 0.5).exp2()|x.expm1()|(x.abs() + 0.5).log()|(x.abs() + 0.5).log2()|(x.abs() + 0.5).log10()
x.abs().log1p()|x.sin()|x.cos()|x.tan()|(x * 0.3).clamp(-1, 1).asin()|(x * 0.3).clamp(-1, 1).acos()
x.atan()|x.sinh()|x.cosh()|x.tanh()|x.asinh()|(x.abs() + 1.5).acosh()|(x * 0.1).clamp(-0.9, 0.9).atanh()
x.erf()|x.erfc()|x.sigmoid()|F.relu(x)|F.relu6(x * 4)|F.leaky_relu(x, 0.1)|F.elu(x)|F.celu(x)|F.selu(x)
F.gelu(x)|F.gelu(x, approximate="tanh")|F.silu(x)|F.mish(x)|F.softplus(x)|F.softsign(x)|F.hardswish(x)
F.hardsigmoid(x)|F.hardtanh(x)|F.tanhshrink(x)|F.softshrink(x)|F.hardshrink(x)|F.logsigmoid(x)
F.threshold(x, 0.1, 2.0)|(x * 3).floor()|(x * 3).ceil()|(x * 3).round()|(x * 3).trunc()|(x * 3).frac()
x ** 2|x ** 3|x.abs() ** 0.5|x.abs() ** 1.7|(x.abs() + 1) ** -0.5|2.0 ** x|x.clamp(-0.5, 0.5)
x.clamp(min=0.1)|x.clamp(max=0.1)|x.square()|x.isnan()|x.isfinite()|(x > 0.2)|(x <= 0)|(x != 0)
torch.where(x > 0, x, x * 0.1)|x.masked_fill(x > 0.5, 0.0)|x.nan_to_num()|x.logit(0.1)|(x * 3).int()
(x * 3).to(torch.int64)|x.float()|x.half().float()|x.double()|x > x.mean()|x.fmod(0.7)|x.remainder(0.7)
torch.heaviside(x, x)|x.logical_not()|1.0 - x|2.0 / (x.abs() + 1)|x + 1 - 0.5 * x|F.dropout(x, 0.5, False)
F.prelu(x, torch.full((1,), 0.2, dtype=x.dtype))|F.glu(torch.cat([x, x], -1), -1)|torch.lerp(x, x * 2, 0.3)
x.sin() * x|torch.full_like(x, 3.0) * x|torch.zeros_like(x)|x.to(torch.bool)"""

BINARY = """x + y|x - y|x * y|x / (y.abs() + 1)|torch.maximum(x, y)|torch.minimum(x, y)|torch.atan2(x, y)
torch.add(x, y, alpha=2)|torch.sub(x, y, alpha=0.5)|torch.rsub(x, y)|torch.hypot(x, y)|x.copysign(y)
torch.where(x > y, x, y)|(x > y)|(x == y)|(x >= y)|(x < y) & (x > 0)|(x < y) | (x > 1)|(x > 0) ^ (y > 0)
torch.logical_and(x > 0, y > 0)|torch.addcmul(x, x, y, value=0.5)|torch.addcdiv(x, x, y.abs() + 1)
F.gelu(x + y) + x|F.silu(x) * y|torch.lerp(x, y, 0.25)|(x - y).abs().sqrt() + x * y|x.fmax(y)|x.fmin(y)
torch.floor_divide(x, y.abs() + 1)|x.remainder(y.abs() + 1)|x * y * y
torch.logaddexp(x, y)|F.mse_loss(x, y.expand_as(x), reduction="none")|F.smooth_l1_loss(x, y.expand_as(x), reduction="none")
torch.sigmoid(x) * torch.tanh(y) + x|x.clamp(-1, 1) * y.exp().clamp(max=4)"""

REDUCTIONS = """x.sum({d})|x.mean({d})|x.amax({d})|x.amin({d})|x.sum({d}, keepdim=True)|x.var({d})|x.std({d})
x.var({d}, unbiased=False)|x.var({d}, keepdim=True)|x.norm(dim={d})|x.abs().amax({d}, keepdim=True) + x
(x > 0).any({s})|(x > -9).all({s})|x.prod({s})|x.max({s})|x.min({s})|x.argmax({s})|x.argmin({s})|x.logsumexp({d})
x - x.mean({d}, keepdim=True)|x / x.norm(dim={d}, keepdim=True)|(x * x).sum({d}).sqrt()|x.sum()|x.mean()|x.max()
x.argmax()|x.norm()|x.std()|x.abs().mean({d}) * 2|(x > 0).sum({d})|x.norm(p=1, dim={d})|x.count_nonzero({s})
(x > 0).any()|x.amax({d}) - x.amin({d})|x.std({d}, keepdim=True) + x.mean({d}, keepdim=True) + x
F.mse_loss(x, x * 0.5)|F.l1_loss(x, x * 0.5)|x.norm(p=float("inf"), dim={d})|x.prod()|x.var()|torch.var_mean(x, {d})"""

NORMS = """F.softmax(x, {s})|F.log_softmax(x, {s})|F.softmin(x, {s})|F.layer_norm(x, x.shape[-1:])|F.rms_norm(x, x.shape[-1:])
x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)|F.normalize(x, dim={s})|F.softmax(x * 0.3 + 1, {s}) * x
F.softmax(x.masked_fill(x > 0.7, float("-inf")), {s})|F.layer_norm(x, x.shape[-1:]) + x|F.softmax(x, {s}).sum({s})
F.gelu(F.layer_norm(x, x.shape[-1:]))|F.cosine_similarity(x, x * 2 + 1, dim={s})|(x - x.mean({s}, keepdim=True)) / (x.std({s}, keepdim=True) + 1e-5)
F.log_softmax(x, {s}).exp().sum({s})|torch.softmax(F.layer_norm(x, x.shape[-1:]), -1)"""

SPATIAL = """F.group_norm(x, 2)|F.group_norm(x, 4, w8, w8)|F.instance_norm(x)|F.batch_norm(x, w8, w8.abs() + 1, w8, w8)
F.relu(F.batch_norm(x, w8, w8.abs() + 1, w8, w8)) + x|F.relu(F.group_norm(x, 8))|x.mean((2, 3))|x.amax((2, 3), keepdim=True) * x
F.pad(x, (1, 2))|F.pad(x, (1, 1, 2, 0), value=3.0)|x.flip(2)|x.roll(3, 3)|x.roll((1, 2), (2, 3))|x.permute(0, 2, 3, 1).contiguous()
x.permute(3, 1, 0, 2).contiguous() * 2|x.transpose(1, 2).reshape(x.shape[0], -1)|torch.cat([x, x * 2], 1)|torch.cat([x, -x, x + 1], 3)
torch.stack([x, x + 1], 1)|x[:, 1:5]|x[:, ::2, 1:, ::3] * 2|x[:, 3]|x[..., -1]|x.flatten(1)|x.unsqueeze(1).expand(-1, 3, -1, -1, -1).contiguous()
x.repeat(1, 2, 1, 1)|x.chunk(2, 1)[1] * x.chunk(2, 1)[0]|x.unfold(3, 3, 2).contiguous()|x.diagonal(0, 2, 3).contiguous()
x.tril()|x.triu(1)|F.pixel_shuffle(x, 2)|F.interpolate(x, scale_factor=2)|x.view(x.shape[0], 2, -1).softmax(-1)
x.movedim(1, -1).softmax(-1)|F.channel_shuffle(x, 2)|x.rot90(1, (2, 3))|x.split(2, 1)[3] + x.split(2, 1)[0]|x.mean(1, keepdim=True).expand_as(x) - x
F.softmax(x.flatten(2), -1).view_as(x)|x.sum(1).sum(1)|F.layer_norm(x, x.shape[1:])|x.transpose(2, 3).softmax(-1).transpose(2, 3)
x.reshape(-1)[::3] + 1|x.mean((0, 2, 3))|x.var((0, 2, 3))|x.amax((1, 2, 3))|x.select(1, 2).unsqueeze(1) * x|torch.tile(x, (2, 1, 1, 1))"""

SCANS = """x.cumsum({s})|x.cumprod({s})|x.cumsum({s}) * 2 + x|(x * 2).cumsum({s})|x.logcumsumexp({s})|x.cumsum({s}).flip({s})
x.flip({s}).cumsum({s})|x.abs().cumsum({s}) / x.abs().sum({s}, keepdim=True)|F.softmax(x, {s}).cumsum({s})"""

MULTI = """(x + 1, x * 2)|(x.sum({s}), x.mean({s}))|(F.softmax(x, {s}), x.amax({s}))|(x + x.sum({s}, keepdim=True), x.sum({s}))
[x.exp(), x.exp().sum({s})]|(x.max({s})[0], x.max({s})[1])|(F.layer_norm(x + 1, x.shape[-1:]), x + 1)|(x, x * 2)|(x.var({s}), x.mean({s}), x * x)
(x.argmax({s}), x.argmin({s}))|(x.t() if x.dim() == 2 else x.transpose(0, -1), x + 1)|(x[..., 0], x[..., -1] * 2)|x.softmax({s}).log()"""

INDEXING = """F.embedding(i, table)|table[i]|F.embedding(i, table) * 2 + 1|F.layer_norm(F.embedding(i, table), (24,))|table.index_select(0, i.flatten())
table.gather(1, (i % 24).view(-1, 1).expand(-1, 24)[:50].contiguous()) if i.numel() >= 50 else table[i]|table[:, i.flatten() % 24]|F.embedding(i, table).mean(1)
torch.take_along_dim(table, (i.flatten()[:24] % 50).view(1, -1), 0)|table[i.flatten(), (i.flatten() + 1) % 24]|F.embedding(i, table).sum(-1) + i|table[i].tanh()
torch.arange(24, dtype=torch.float32) * table|torch.where(i > 20, i, -i)|i // 3 + i % 7|(i * 3 - 1).clamp(0, 9)|i.float() / 7|table.flip(0)[i]|(i & 3) | 8|i.sum(-1)|i.amax(-1) * 2|i << 1"""


# Before `::` the layer that the expression calls `l`. {n} is the last extent.
PRODUCTS = """nn.Linear({n}, 24) :: l(x)|nn.Linear({n}, 40) :: F.relu(l(x))|nn.Linear({n}, 33, bias=False) :: F.gelu(l(x)) * 2
nn.Linear({n}, 1) :: torch.sigmoid(l(x))|nn.Linear({n}, 24) :: F.softmax(l(x), -1)|nn.Linear({n}, 24) :: F.layer_norm(l(x), (24,))
nn.Linear({n}, {n}) :: l(x) + x|nn.Linear({n}, 24) :: l(x).sum(-1)|nn.Linear({n}, 24) :: (l(x) / 3).sum(-1, keepdim=True) * 1.5
nn.Linear({n}, 24) :: l(x).mean(0)|nn.Linear({n}, 24) :: l(x).sum()|nn.Linear({n}, 24) :: (l(x), F.relu(l(x)))
nn.Linear({n}, 24) :: l(x).transpose(0, -1)|nn.Sequential(nn.Linear({n}, 32), nn.ReLU(), nn.Linear(32, 9)) :: l(x)
nn.Sequential(nn.Linear({n}, 24), nn.BatchNorm1d(24)) :: l(x.reshape(-1, {n}))|nn.Linear({n}, 24) :: 1 - l(x) * 0.5
x @ x.transpose(-1, -2)|x.transpose(-1, -2) @ x|(x * 0.125) @ x.transpose(-1, -2)|torch.tril(x @ x.transpose(-1, -2))
F.scaled_dot_product_attention(x, x, x)|F.scaled_dot_product_attention(x, x, x, is_causal=True)|(x @ x.transpose(-1, -2)).softmax(-1) @ x
torch.diag_embed(x[..., :8]) @ x[..., :8].unsqueeze(-1).expand(*x.shape[:-1], -1, 3)|x @ torch.eye({n}, dtype=x.dtype)|torch.diag(x.flatten()[:6]) @ x.reshape(-1)[:24].view(6, 4)
x @ x.flatten(0, -2)[0]|x[..., :3] @ x[..., :3].transpose(-1, -2)|nn.Bilinear({n}, {n}, 5) :: l(x, x)|F.relu(x @ x.transpose(-1, -2)) @ x + x
torch.baddbmm(x.unsqueeze(0).flatten(0, -3) * 2, x.unsqueeze(0).flatten(0, -3), torch.eye({n}, dtype=x.dtype).expand(x.unsqueeze(0).flatten(0, -3).shape[0], -1, -1), beta=0.5, alpha=2)
torch.addmm(x.flatten(0, -2), x.flatten(0, -2).exp(), torch.eye({n}, dtype=x.dtype) + 1, alpha=0.5)|(x.flatten(0, -2).t() @ x.flatten(0, -2)).sum(0)"""

CONVOLUTIONS = """nn.Conv2d(8, 12, 3) :: l(x)|nn.Conv2d(8, 12, 3, padding=1) :: F.relu(l(x))|nn.Conv2d(8, 12, 3, stride=2, padding=1, bias=False) :: l(x)
nn.Conv2d(8, 8, 3, padding=1) :: F.relu(l(x) + x)|nn.Conv2d(8, 12, (1, 3), dilation=(1, 2), padding=(0, 2)) :: F.gelu(l(x))|nn.Conv2d(8, 16, 3, groups=4) :: l(x)
nn.Conv2d(8, 16, 3, groups=8, padding=1) :: l(x.sigmoid())|nn.Conv2d(8, 40, 1) :: F.silu(l(x))|nn.Conv2d(8, 6, 1, stride=2) :: l(x)
nn.Sequential(nn.Conv2d(8, 12, 3, bias=False), nn.BatchNorm2d(12), nn.ReLU()) :: l(x)|nn.Sequential(nn.Conv2d(8, 12, 3), nn.BatchNorm2d(12)) :: F.hardswish(l(x))
nn.Sequential(nn.ConvTranspose2d(8, 6, 3, stride=2, groups=2), nn.BatchNorm2d(6)) :: l(x)|nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1) :: F.relu(l(x))
nn.Conv1d(8, 12, 3) :: l(x.flatten(2))|nn.Conv1d(8, 12, 3, padding=1, stride=2) :: l(x[:, :, 0])|nn.ConvTranspose1d(8, 4, 4, stride=2) :: l(x.flatten(2))
nn.Conv3d(2, 4, 2) :: l(x.reshape(2, 2, 4, x.shape[2], x.shape[3]))|nn.ConvTranspose3d(2, 4, 2, stride=2) :: l(x.reshape(2, 2, 4, x.shape[2], x.shape[3]))
nn.Conv2d(8, 8, 3) :: F.group_norm(l(x), 4)|nn.Conv2d(8, 8, 3) :: F.max_pool2d(F.relu(l(x)), 2)|nn.Conv2d(8, 8, 3) :: l(x).mean((2, 3))
nn.Conv2d(8, 8, 3) :: l(x).permute(0, 2, 3, 1).contiguous()|nn.Conv2d(8, 8, 3) :: l(x).flatten(2).softmax(-1)|nn.Conv2d(8, 8, 3) :: (l(x), l(x).relu())
nn.Conv2d(8, 8, 3, padding="same") :: torch.cat([l(x), x], 1)|nn.Sequential(nn.Conv2d(8, 12, 3), nn.ReLU(), nn.BatchNorm2d(12)) :: l(x)|nn.Conv2d(8, 12, 3) :: l(x).tanh() * 2 + 1"""

POOLING = """F.max_pool2d(x, 2)|F.max_pool2d(x, 3, 2, 1)|F.max_pool2d(x, 3, 1, 1, ceil_mode=True)|F.max_pool2d(x, 2, 2, 1, dilation=2)
F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True)|F.avg_pool2d(x, 2)|F.avg_pool2d(x, 3, 2, 1)|F.avg_pool2d(F.relu(x), 3, 1, 1, count_include_pad=False)
F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)|F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)|F.avg_pool2d(x, 2, divisor_override=3)
F.adaptive_avg_pool2d(x, 1)|F.adaptive_avg_pool2d(x, 2)|F.adaptive_avg_pool2d(x, (2, 3))|F.adaptive_avg_pool2d(x.exp(), 3)|F.adaptive_max_pool2d(x, (3, 2))
F.adaptive_max_pool2d(x, 3, return_indices=True)|F.avg_pool1d(x.flatten(2), 3)|F.max_pool1d(x.flatten(2), 3, 2, 1)|F.adaptive_avg_pool1d(x.flatten(2), 7)
F.lp_pool2d(x.abs() + 0.1, 2, 2)|F.avg_pool3d(x, 2)|F.max_pool3d(x, 2)|F.max_pool2d(x, 2) + 1|F.avg_pool2d(F.gelu(x), 3, 1, 1) * x|x - F.avg_pool2d(x, 3, 1, 1)"""

RECURRENT = """nn.LSTM({n}, 20) :: l(x)[0]|nn.LSTM({n}, 20, 3, batch_first=True) :: l(x)[0][:, -1]|nn.GRU({n}, 12, 2, bidirectional=True) :: l(x)
nn.LSTM({n}, 9, 2, bidirectional=True) :: (l(x)[0], l(x)[1][0], l(x)[1][1])|nn.GRU({n}, 33, bias=False) :: l(x)[0] + 1|nn.RNN({n}, 16, 2) :: l(x)[1]
nn.RNN({n}, 16, nonlinearity="relu", batch_first=True) :: l(x)[0].sum(1)|nn.LSTM({n}, 16, bias=False) :: l(x)[1][1]
nn.LSTM({n}, 8, 2) :: l(x, (x.mean() + x.new_ones(2, x.shape[1], 8), x.new_full((2, x.shape[1], 8), 0.5)))[0]|nn.GRU({n}, 8, batch_first=True) :: l(x, x.new_ones(1, x.shape[0], 8))[1]
nn.GRU({n}, 40, batch_first=True, bidirectional=True) :: F.softmax(l(x)[0][:, -1], -1)"""


def fields(text: str) -> list[str]:
    return [e.strip() for line in text.strip().splitlines() for e in line.split("|") if e.strip()]


def split_top(text: str) -> list[str]:
    """Splits a table at `|` that stand outside brackets, so that `a | b` needs brackets."""
    out = []
    for line in text.strip().splitlines():
        depth, start = 0, 0
        for k, c in enumerate(line):
            depth += (c in "([{") - (c in ")]}")
            spaced = line[k - 1 : k + 2] == " | "
            if c == "|" and depth == 0 and not spaced:
                out.append(line[start:k].strip())
                start = k + 1
        out.append(line[start:].strip())
    return [e for e in out if e]


FAMILIES = {
    "unary": split_top(UNARY), "binary": split_top(BINARY), "reduction": split_top(REDUCTIONS),
    "norm": split_top(NORMS), "spatial": split_top(SPATIAL), "scan": split_top(SCANS),
    "multi": split_top(MULTI), "indexing": split_top(INDEXING),
    "product": split_top(PRODUCTS), "convolution": split_top(CONVOLUTIONS), "pool": split_top(POOLING),
    "recurrent": split_top(RECURRENT),
}  # fmt: skip

HEAVY = ("product", "convolution", "pool", "recurrent")

PREAMBLE = """import torch
import torch.nn as nn
import torch.nn.functional as F


def make(shape, dtype, layout):
    if layout == "transposed" and len(shape) > 1:
        order = list(shape[:-2]) + [shape[-1], shape[-2]]
        return torch.randn(order).to(dtype).transpose(-1, -2)
    if layout == "sliced":
        return torch.randn(*shape[:-1], shape[-1] * 2 + 1).to(dtype)[..., 1::2]
    if layout == "offset":
        return torch.randn(shape[0] + 2, *shape[1:]).to(dtype)[1:-1]
    return torch.randn(shape).to(dtype)


def settle(model):
    for m in model.modules():
        if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d)):
            m.running_mean.normal_()
            m.running_var.uniform_(0.5, 2.0)
            nn.init.normal_(m.weight)
            nn.init.normal_(m.bias)

"""


def source(
    expr: str, family: str, shape: tuple[int, ...], dtype: str, layout: str, rng: random.Random
) -> str:
    d = rng.randrange(len(shape)) if len(shape) > 1 and rng.random() < 0.5 else -1
    dims = str(d)
    if len(shape) > 2 and rng.random() < 0.35:
        dims = str(tuple(sorted(rng.sample(range(len(shape)), 2))))
    expr = expr.replace("{d}", dims).replace("{s}", str(d))
    args, inputs = ["x"], [f'make({shape}, torch.{dtype}, "{layout}")']
    init = "pass"
    if family == "binary":
        other = list(shape)
        kind = rng.randrange(4)
        if kind == 1:
            other = other[-1:]
        elif kind == 2:
            other[rng.randrange(len(other))] = 1
        elif kind == 3:
            other = [1] * (len(other) - 1) + other[-1:]
        args.append("y")
        lay = rng.choice(LAYOUTS)
        inputs.append(f'make({tuple(other)}, torch.{dtype}, "{lay}")')
    if family == "indexing":
        args = ["i"]
        ishape = rng.choice([(7,), (4, 9), (3, 20)])
        inputs = [f"torch.randint(0, 50, {ishape})"]
        init = "self.table = nn.Parameter(torch.randn(50, 24))"
        expr = f"(lambda table: {expr})(self.table)"
    if "w8" in expr:
        init = f"self.w8 = nn.Parameter(torch.randn({shape[1]}, dtype=torch.{dtype}))"
        expr = f"(lambda w8: {expr})(self.w8)"
    if family in HEAVY:
        expr = expr.replace("{n}", str(shape[-1]))
        layer, _, expr = expr.rpartition(" :: ")
        expr = expr.strip()
        if layer:
            init = f"self.l = {layer.strip()}.to(torch.{dtype})\n        settle(self)"
            expr = f"(lambda l: {expr})(self.l)"
    return (
        PREAMBLE
        + f"""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {", ".join(args)}):
        return {expr}


def get_inputs():
    return [{", ".join(inputs)}]


def get_init_inputs():
    return []
"""
    )


def load(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def runs(text: str, path: Path) -> bool:
    """Whether eager itself can do it: not every operator exists for every type."""
    path.write_text(text)
    torch.manual_seed(0)
    try:
        m = load(path, "probe")
        with torch.no_grad():
            out = m.Model().eval()(*m.get_inputs())
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
        return False
    outs = [out] if isinstance(out, torch.Tensor) else list(out)
    return all(isinstance(o, torch.Tensor) and o.numel() > 0 for o in outs)


def draw(seed: int, count: int, family: str | None) -> list[tuple[str, str]]:
    """`count` cases: every expression in turn, with the properties that were paired least."""
    rng = random.Random(seed)
    names = [family] if family else [f for f in FAMILIES if f not in HEAVY]
    pool = [(f, e) for f in names for e in FAMILIES[f]]
    rng.shuffle(pool)
    # Families in turn, so that a small sample has all of them.
    by: dict[str, list[str]] = {f: [e for g, e in pool if g == f] for f in names}
    order = [
        (f, e)
        for row in itertools.zip_longest(*by.values())
        for f, e in zip(names, row, strict=True)
        if e
    ]
    seen: dict[Any, int] = {}
    out = []
    for f, e in itertools.islice(itertools.cycle(order), count):
        best: Any = None
        for _ in range(12):
            planes = f in ("spatial", "convolution", "pool")
            shape = (
                (2, 8, rng.choice([5, 6, 8]), rng.choice([8, 10])) if planes else rng.choice(SHAPES)
            )
            if f == "product":
                shape = rng.choice(
                    [
                        (7, 33),
                        (64, 96),
                        (3, 5, 32),
                        (1, 130),
                        (33, 1),
                        (2, 3, 9, 16),
                        (4, 1, 17),
                        (70, 200),
                    ]
                )
            if f == "norm" and len(shape) == 1:
                shape = (9, 40)
            if f == "recurrent":
                shape = rng.choice([(3, 5, 32), (7, 2, 9), (1, 6, 40), (12, 1, 17), (4, 8, 3)])
            single = f in ("scan", "recurrent")
            dtype = rng.choice(["float32", "float64"] if single else FLOATS)
            layout = rng.choice(LAYOUTS)
            pairs = [
                (f, shape),
                (f, dtype),
                (f, layout),
                (shape, dtype),
                (shape, layout),
                (dtype, layout),
                (e, dtype),
            ]
            score = sum(seen.get(p, 0) for p in pairs) + rng.random()
            if best is None or score < best[0]:
                best = (score, shape, dtype, layout, pairs)
        _, shape, dtype, layout, pairs = best
        for p in pairs:
            seen[p] = seen.get(p, 0) + 1
        out.append((f"{f}: {e} {shape} {dtype} {layout}", source(e, f, shape, dtype, layout, rng)))
    return out


def trace_all(texts: list[tuple[str, str]], probe: bool) -> None:
    """Prints the cases; with ``probe``, without those that eager itself cannot do."""
    from utils import trace

    trace.map_cuda_to_cpu()
    trace.map_cuda_to_cpu = lambda: None
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts:
            path = Path(folder) / "model.py"
            path.write_text(text)
            if probe and not runs(text, path):
                continue
            try:
                graph = trace.printed(str(path))
            except Exception as e:  # a failed case of the test
                graph = json.dumps({"error": f"{type(e).__name__}: {e}"[:500], "hint": ""})
            cases.append({"name": name, "model": text, "trace": graph})
    print(json.dumps(cases))


def trace_into(files: list[Path], out: Path, seconds: int) -> None:
    """Traces each file in a process of its own, so that none can spoil or stop the others."""
    from utils import trace

    trace.map_cuda_to_cpu()
    trace.map_cuda_to_cpu = lambda: None
    for path in files:
        target = out / f"{path.stem}.json"
        child = os.fork()
        if child == 0:
            signal.alarm(seconds)
            try:
                graph = trace.printed(str(path))
            except Exception as e:
                text = f"{type(e).__name__}: {e}"[:500]
                graph = json.dumps({"error": text, "hint": getattr(e, "hint", "")})
            target.write_text(graph)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            reason = {"error": "the tracer died, or took too long", "hint": ""}
            target.write_text(json.dumps(reason))


def flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def wrap(function: Any) -> Any:
    function.restype = ctypes.c_int

    def call(*args: Any) -> None:
        raw = []
        for a in args:
            if isinstance(a, int):
                raw.append(ctypes.c_int64(a))
                continue
            assert isinstance(a, torch.Tensor) and a.is_contiguous(), "contiguous tensors only"
            raw.append(ctypes.c_void_p(a.data_ptr()))
        code = function(*raw, None)
        if code:
            raise RuntimeError(f"launch failed with {code}")

    return call


def differs(eager: torch.Tensor, got: torch.Tensor, truth: torch.Tensor) -> str | None:
    if eager.shape != got.shape or eager.dtype != got.dtype:
        return f"is {tuple(got.shape)} {got.dtype}, expected {tuple(eager.shape)} {eager.dtype}"
    if not eager.is_floating_point():
        wrong = int((eager != got).sum())
        return f"{wrong} of {eager.numel()} elements differ" if wrong else None
    finite = eager.isfinite()
    if not torch.equal(finite, got.isfinite()):
        return "finite where torch is not, or the reverse"
    if not torch.equal(eager[~finite].nan_to_num(7.0), got[~finite].nan_to_num(7.0)):
        return "other infinities or NaN"
    if not finite.any():
        return None
    t = truth[finite].double()
    e, g = (eager[finite].double() - t).abs(), (got[finite].double() - t).abs()
    unit = {torch.float32: 6e-8, torch.float16: 5e-4, torch.bfloat16: 4e-3, torch.float64: 1e-15}
    scale = float(t.abs().max())
    limit = 16 * max(float(e.max()), unit[eager.dtype] * scale) + 1e-30
    return f"error {float(g.max()):.3g} over {limit:.3g}" if float(g.max()) > limit else None


def input_sets(reference: Any) -> list[dict[str, Any]]:
    """Arguments of `get_inputs`: those of workloads, and those that the tracer did not see."""
    if not hasattr(reference, "get_workloads"):
        return [{}]
    seen = [workload["arguments"] for workload in reference.get_workloads()]
    return seen + getattr(reference, "UNSEEN", [])


def accepted(new: Any, inputs: list[Any]) -> str | None:
    """Whether a module computes something of inputs that it must refuse."""
    try:
        new(*inputs)
    except ValueError:
        return None
    return f"is computed for {[tuple(x.shape) for x in inputs]}"


def problems_with(model: Any, new: Any, inputs: list[Any]) -> list[str | None]:
    """How the results of two modules differ."""
    with torch.no_grad():
        eager = flat(model(*inputs))
        real = [isinstance(v, torch.Tensor) and v.is_floating_point() for v in inputs]
        wide = [v.double() if r else v for v, r in zip(inputs, real, strict=True)]
        try:
            truth = flat(copy.deepcopy(model).double()(*wide))
        except RuntimeError:
            truth = eager
        new(*inputs)  # what it keeps from call to call must not show
        other = copy.deepcopy(new)
        for tensor in (*other.parameters(), *other.buffers()):
            tensor.zero_()
        other.is_prepared = False
        other(*inputs)  # and a copy is a model of its own
        got = flat(new(*inputs))
    return [differs(a, b, t) for a, b, t in zip(eager, got, truth, strict=True)]


def compare_all(folder: Path) -> int:
    torch.set_num_threads(1)
    library = ctypes.CDLL(str(folder / "libkernels.so"))
    failures = []
    for case in sorted(p for p in folder.iterdir() if p.is_dir()):
        name = (case / "name").read_text()
        module = types.ModuleType("cuda_extension")
        prefix = f"{case.name}_"
        module.__getattr__ = lambda n, p=prefix: wrap(getattr(library, p + n))  # type: ignore[method-assign]
        sys.modules["cuda_extension"] = module
        torch.manual_seed(1)
        try:
            reference = load(case / "model.py", "reference")
            init = reference.get_init_inputs()
            model = reference.Model(*init).eval()
            new = load(case / "model_new.py", "candidate").ModelNew(*init)
            new.load_state_dict(model.state_dict(), strict=True)
            problems = []
            for arguments in input_sets(reference):
                problems += problems_with(model, new, reference.get_inputs(**arguments))
            for arguments in getattr(reference, "REFUSED", []):
                problems.append(accepted(new, reference.get_inputs(**arguments)))
        except Exception as e:
            problems = [f"{type(e).__name__}: {e}"]
        failures += [f"{case.name} {name}: output {k} {p}" for k, p in enumerate(problems) if p]
    print("\n".join(failures))
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="what", required=True)
    tracing = commands.add_parser("trace")
    tracing.add_argument("--seed", type=int, default=0)
    tracing.add_argument("--count", type=int, default=80)
    tracing.add_argument("--family", default=None)
    tracing.add_argument("--files", type=Path, default=None)
    tracing.add_argument("--into", type=Path, default=None)
    tracing.add_argument("--seconds", type=int, default=300)
    comparing = commands.add_parser("compare")
    comparing.add_argument("folder", type=Path)
    args = parser.parse_args()
    if args.what == "trace":
        if args.files and args.into:
            trace_into(sorted(args.files.glob("*.py")), args.into, args.seconds)
        elif args.files:
            files = sorted(args.files.glob("*.py"))
            trace_all([(p.stem, p.read_text()) for p in files], probe=False)
        else:
            trace_all(draw(args.seed, args.count, args.family), probe=True)
        return 0
    return compare_all(args.folder)


if __name__ == "__main__":
    sys.exit(main())
