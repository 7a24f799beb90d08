"""Runs every launcher of the corpus and compares it with torch on the CPU.

Usage: corpus.py FOLDER, which holds one NAME.so per NAME.cu. Prints one line per case and exits with
1 if any differs.
"""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F

Tensors = list[torch.Tensor]
CASES: list[tuple[str, str, Callable[["Launch"], None]]] = []


class Launch:
    """One launcher; calling it passes tensors as addresses and converts numbers by their tag."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.function = getattr(library, name)
        self.function.restype = ctypes.c_int

    def __call__(self, *args: object) -> int:
        out: list[object] = []
        for a in args:
            if isinstance(a, torch.Tensor):
                assert a.is_contiguous()
                out.append(ctypes.c_void_p(a.data_ptr()))
            elif isinstance(a, bool):
                out.append(ctypes.c_bool(a))
            elif isinstance(a, float):
                out.append(ctypes.c_float(a))
            elif isinstance(a, tuple):
                out.append(a[0](a[1]))
            else:
                out.append(ctypes.c_int(int(str(a))))
        return int(self.function(*out, ctypes.c_void_p(0)))


def case(library: str, name: str) -> Callable[[Callable[[Launch], None]], None]:
    def add(body: Callable[[Launch], None]) -> None:
        CASES.append((library, name, body))

    return add


def close(got: torch.Tensor, want: torch.Tensor, tol: float = 1e-5) -> None:
    torch.testing.assert_close(got, want, atol=tol, rtol=tol, equal_nan=True)


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    fill = float("nan") if dtype.is_floating_point else 77
    return torch.full(shape, fill, dtype=dtype)


R = torch.randn


@case("pointwise", "bias_gelu_residual")
def _(k: Launch) -> None:
    for rows, d in ((37, 129), (64, 256), (1, 3)):
        x, b, r = R(rows, d), R(d), R(rows, d)
        y = empty(rows, d)
        k(x, b, r, y, x.numel(), d)
        close(y, F.gelu(x + b) + r)


@case("pointwise", "bias_gelu_residual_vec4")
def _(k: Launch) -> None:
    for rows, d in ((33, 132), (64, 256), (1, 1024), (3, 4)):
        x, b, r = R(rows, d), R(d), R(rows, d)
        y = empty(rows, d)
        assert k(x, b, r, y, x.numel(), d) == 0
        close(y, F.gelu(x + b) + r)


@case("pointwise", "gelu_stride")
def _(k: Launch) -> None:
    for n in (1, 1000, 100_003):
        x, y = R(n) * 4, empty(n)
        k(x, y, n)
        close(y, F.gelu(x, approximate="tanh"))


@case("pointwise", "silu_mul")
def _(k: Launch) -> None:
    for n in (5, 70_001):
        g, u, y = R(n), R(n), torch.zeros(n)
        g[n // 2] = float("nan")
        want = F.silu(g) * u
        want[n // 2] = 0
        assert k(g, u, y, (ctypes.c_size_t, n)) == 0
        close(y, want)


@case("pointwise", "unary")
def _(k: Launch) -> None:
    x = R(12_345) * 3
    for which, f in enumerate((F.mish, F.hardswish, lambda t: F.leaky_relu(t, 0.1))):
        y = empty(x.numel())
        k(x, y, x.numel(), which)
        close(y, f(x))


@case("pointwise", "clamp_nan")
def _(k: Launch) -> None:
    x = R(1003)
    x[::7] = float("nan")
    x[3], x[4] = float("inf"), -float("inf")
    y = empty(1003)
    k(x, y, 1003, -0.5, 0.75)
    close(y, x.clamp(-0.5, 0.75))


@case("pointwise", "channel_affine")
def _(k: Launch) -> None:
    x, w, b = R(3, 5, 7, 11), R(5), R(5)
    y = empty(3, 5, 7, 11)
    k(x, w, b, y, 3, 5, 77)
    close(y, x * w[None, :, None, None] + b[None, :, None, None])


@case("pointwise", "outer_add")
def _(k: Launch) -> None:
    a, b, y = R(45), R(67), empty(45, 67)
    k(a, b, y, 45, 67)
    close(y, a[:, None] + b)


@case("softmax", "row_softmax")
def _(k: Launch) -> None:
    for rows, cols in ((7, 1000), (3, 33), (5, 13_000)):
        x, m, y = (
            R(rows, cols) * 3,
            torch.where(torch.rand(cols) < 0.2, -1e9, 0.0),
            empty(rows, cols),
        )
        k(x, m, y, rows, cols, 0.5)
        close(y, (x * 0.5 + m).softmax(-1), 1e-6)


@case("softmax", "warp_softmax")
def _(k: Launch) -> None:
    for rows, cols in ((9, 100), (4, 7), (1, 513)):
        x, y = R(rows, cols) * 5, empty(rows, cols)
        k(x, y, rows, cols)
        close(y, x.softmax(-1), 1e-6)


@case("softmax", "logsumexp")
def _(k: Launch) -> None:
    x, y = R(11, 777) * 10, empty(11)
    k(x, y, 11, 777)
    close(y, x.logsumexp(-1))


@case("norm", "layernorm")
def _(k: Launch) -> None:
    for d in (768, 50):
        x, g, b, y = R(6, d) * 2 + 1, R(d), R(d), empty(6, d)
        k(x, g, b, y, 6, d, 1e-5)
        close(y, F.layer_norm(x, (d,), g, b), 1e-4)


@case("norm", "rmsnorm")
def _(k: Launch) -> None:
    x, w, y = R(9, 1536), R(1536), empty(9, 1536)
    k(x, w, y, 9, 1536, 1e-6)
    close(y, F.rms_norm(x, (1536,), w, 1e-6))


@case("norm", "rmsnorm_half")
def _(k: Launch) -> None:
    x, w, y = R(5, 640).half(), R(640).half(), empty(5, 640, dtype=torch.float16)
    k(x, w, y, 5, 640, 1e-6)
    close(y, F.rms_norm(x.float(), (640,), w.float(), 1e-6).half(), 2e-3)


@case("norm", "groupnorm")
def _(k: Launch) -> None:
    x, g, b, y = R(3, 8, 5, 9), R(8), R(8), empty(3, 8, 5, 9)
    k(x, g, b, y, 3, 8, 45, 4, 1e-5)
    close(y, F.group_norm(x, 4, g, b), 1e-4)


@case("matmul", "matmul_naive")
def _(k: Launch) -> None:
    a, b, c = R(33, 70), R(70, 45), empty(33, 45)
    k(a, b, c, 33, 45, 70)
    close(c, a @ b, 1e-4)


@case("matmul", "matmul_tiled")
def _(k: Launch) -> None:
    for m, n, d in ((33, 45, 70), (64, 64, 64)):
        a, b, c = R(m, d), R(d, n), empty(m, n)
        k(a, b, c, m, n, d)
        close(c, a @ b, 1e-4)


@case("matmul", "linear_relu")
def _(k: Launch) -> None:
    for m, n, d in ((100, 130, 77), (64, 128, 32)):
        a, b, bias, c = R(m, d), R(d, n), R(n), empty(m, n)
        k(a, b, bias, c, m, n, d)
        close(c, F.relu(a @ b + bias), 1e-4)


@case("matmul", "gemv")
def _(k: Launch) -> None:
    w, x, y = R(101, 300), R(300), empty(101)
    k(w, x, y, 101, 300)
    close(y, w @ x, 1e-4)


@case("movement", "transpose_f32")
def _(k: Launch) -> None:
    for r, c in ((100, 70), (32, 32), (1, 65)):
        x, y = R(r, c), empty(c, r)
        k(x, y, r, c)
        close(y, x.t(), 0)


@case("movement", "transpose_u8")
def _(k: Launch) -> None:
    x, y = torch.randint(0, 256, (65, 130), dtype=torch.uint8), empty(130, 65, dtype=torch.uint8)
    k(x, y, 65, 130)
    close(y, x.t(), 0)


@case("movement", "permute")
def _(k: Launch) -> None:
    x, y = R(6, 7, 50), empty(50, 6, 7)
    k(x, y, 6, 7, 50)
    close(y, x.permute(2, 0, 1), 0)


@case("movement", "embedding")
def _(k: Launch) -> None:
    t, ids, y = R(20, 100), torch.randint(0, 20, (13,)), empty(13, 100)
    k(ids, t, y, 13, 100)
    close(y, F.embedding(ids, t), 0)


@case("movement", "concat")
def _(k: Launch) -> None:
    a, b, y = R(5, 60), R(5, 99), empty(5, 159)
    k(a, b, y, 5, 60, 99)
    close(y, torch.cat((a, b), 1), 0)


@case("reduce", "sum_all")
def _(k: Launch) -> None:
    x, y = R(100_001), empty(1)
    k(x, y, x.numel())
    close(y[0], x.double().sum().float(), 1e-3)


@case("reduce", "argmax")
def _(k: Launch) -> None:
    x, y = torch.randint(0, 50, (9, 1000)).float(), empty(9, dtype=torch.int32)
    k(x, y, 9, 1000)
    first = (x == x.max(1, keepdim=True).values).int().argmax(1)
    close(y, first.int(), 0)


@case("reduce", "cumsum")
def _(k: Launch) -> None:
    x, y = R(4, 1111), empty(4, 1111)
    k(x, y, 4, 1111)
    close(y, x.cumsum(1), 1e-3)


@case("reduce", "scan_exclusive")
def _(k: Launch) -> None:
    x, y = torch.randint(-9, 9, (500,), dtype=torch.int32), empty(500, dtype=torch.int32)
    k(x, y, 500)
    close(y, (x.cumsum(0) - x).int(), 0)


@case("reduce", "histogram")
def _(k: Launch) -> None:
    x, y = torch.randint(0, 256, (54_321,), dtype=torch.uint8), empty(256, dtype=torch.int32)
    k(x, y, x.numel())
    close(y, torch.bincount(x.int(), minlength=256).int(), 0)


@case("reduce", "absmax")
def _(k: Launch) -> None:
    x, y = R(7777), empty(1)
    k(x, y, x.numel())
    close(y[0], x.abs().max(), 0)


@case("reduce", "count_positive")
def _(k: Launch) -> None:
    x, y = R(10_007), empty(1, dtype=torch.int32)
    k(x, y, x.numel())
    close(y[0], (x > 0).sum().int(), 0)


@case("reduce", "column_mean")
def _(k: Launch) -> None:
    x, y = R(301, 75), empty(75)
    k(x, y, 301, 75)
    close(y, x.mean(0), 1e-5)


@case("lowprec", "half2_axpby")
def _(k: Launch) -> None:
    x, y, o = R(1002).half(), R(1002).half(), empty(1002, dtype=torch.float16)
    k(x, y, o, 501, 0.5, 2.0)
    close(o, (0.5 * x.float() + (2.0 * y.float()).half().float()).half(), 0)


@case("lowprec", "relu_scale_half")
def _(k: Launch) -> None:
    x, o = R(999).half(), empty(999, dtype=torch.float16)
    k(x, o, 999, 1.7)
    close(o, (F.relu(x.float()) * torch.tensor(1.7)).half(), 0)


@case("lowprec", "relu_scale_bf16")
def _(k: Launch) -> None:
    x, o = R(999).bfloat16(), empty(999, dtype=torch.bfloat16)
    k(x, o, 999, 1.7)
    close(o, (F.relu(x.float()) * torch.tensor(1.7)).bfloat16(), 0)


@case("lowprec", "silu_half8")
def _(k: Launch) -> None:
    x, o = R(4096).half(), empty(4096, dtype=torch.float16)
    k(x, o, 4096)
    close(o, F.silu(x.float()).half(), 1e-3)


@case("lowprec", "bf16_add")
def _(k: Launch) -> None:
    a, b, o = R(1001).bfloat16(), R(1001).bfloat16(), empty(1001, dtype=torch.bfloat16)
    k(a, b, o, 1001)
    close(o, a + b, 0)


@case("lowprec", "bf16_dot")
def _(k: Launch) -> None:
    a, b, o = R(8, 500).bfloat16(), R(8, 500).bfloat16(), empty(8)
    k(a, b, o, 8, 250)
    close(o, (a.float() * b.float()).sum(1), 1e-4)


@case("lowprec", "half_max")
def _(k: Launch) -> None:
    x, o = R(1000).half(), empty(1, dtype=torch.float16)
    k(x, o, 1000)
    close(o[0], x.max(), 0)


@case("lowprec", "half_roundtrip")
def _(k: Launch) -> None:
    bits = torch.arange(65536, dtype=torch.int32).to(torch.uint16)
    wide, back = empty(65536), torch.zeros(65536, dtype=torch.uint16)
    k(bits, wide, back, 65536)
    close(wide, bits.view(torch.float16).float(), 0)
    finite = ~torch.isnan(wide)
    assert torch.equal(back.int()[finite], bits.int()[finite])


@case("groups", "group_row_sum")
def _(k: Launch) -> None:
    x, y = R(5, 1000), empty(5)
    k(x, y, 5, 1000)
    close(y, x.sum(1), 1e-4)


@case("groups", "ragged_max")
def _(k: Launch) -> None:
    x, n, y = R(51, 90), torch.randint(1, 91, (51,), dtype=torch.int32), empty(51)
    k(x, n, y, 51, 90)
    close(y, torch.stack([x[i, : int(n[i])].max() for i in range(51)]), 0)


@case("spatial", "conv1d_constant")
def _(k: Launch) -> None:
    x, w, y = R(1000), R(5), empty(1000)
    assert k(x, w, y, 1000) == 0
    close(y, F.conv1d(x[None, None], w[None, None], padding=2)[0, 0])


@case("spatial", "stencil")
def _(k: Launch) -> None:
    x, y = R(45, 77), empty(45, 77)
    k(x, y, 45, 77)
    w = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])
    close(y, F.conv2d(x[None, None], w[None, None], padding=1)[0, 0])


@case("spatial", "conv2d")
def _(k: Launch) -> None:
    x, w, b, y = R(2, 3, 19, 23), R(4, 3, 3, 3), R(4), empty(2, 4, 17, 21)
    k(x, w, b, y, 2, 3, 19, 23, 4, 3)
    close(y, F.conv2d(x, w, b), 1e-4)


@case("spatial", "maxpool2d")
def _(k: Launch) -> None:
    x = R(2, 3, 15, 22)
    want = F.max_pool2d(x, 3, 2, 1)
    y = empty(*want.shape)
    k(x, y, 6, 15, 22, 3, 2, 1)
    close(y, want, 0)


@case("spatial", "global_avgpool")
def _(k: Launch) -> None:
    x, y = R(7, 333), empty(7)
    k(x, y, 7, 333)
    close(y, x.mean(1))


@case("attention", "attention")
def _(k: Launch) -> None:
    q, kk, v = R(3, 100, 32), R(3, 100, 32), R(3, 100, 32)
    for causal in (False, True):
        o = empty(3, 100, 32)
        k(q, kk, v, o, 3, 100, causal)
        close(o, F.scaled_dot_product_attention(q, kk, v, is_causal=causal), 1e-5)


@case("attention", "rope")
def _(k: Launch) -> None:
    x, c, s, y = R(10, 4, 16), R(10, 8), R(10, 8), empty(10, 4, 16)
    k(x, c, s, y, 10, 4, 16)
    a, b = x[..., :8], x[..., 8:]
    close(y, torch.cat((a * c[:, None] - b * s[:, None], b * c[:, None] + a * s[:, None]), -1))


@case("language", "with_params")
def _(k: Launch) -> None:
    x, y = R(500), empty(500)
    k(x, y, 500, 3.0)
    close(y, x * 3, 0)


@case("language", "through_pointer")
def _(k: Launch) -> None:
    x = R(500)
    for multiply in (False, True):
        y = empty(500)
        k(x, y, 500, 3.0, multiply)
        close(y, x * 3 if multiply else x + 3, 0)


@case("language", "through_launch_kernel")
def _(k: Launch) -> None:
    x, y = R(500), empty(500)
    assert k(x, y, 500, 3.0) == 0
    close(y, x + 3, 0)


@case("language", "reverse_rows")
def _(k: Launch) -> None:
    x, y = R(30, 100), empty(30, 100)
    k(x, y, 30, 100)
    close(y, x.flip(1), 0)


@case("language", "one_declaration")
def _(k: Launch) -> None:
    x, y = R(500), empty(500)
    k(x, y, 500)
    close(y, x + 1, 0)


@case("language", "affine_clip")
def _(k: Launch) -> None:
    x, y = R(500), empty(500)
    k(x, y, 500, 0.5, 0.5)
    close(y, (x * 0.5 + 0.5).clamp(0, 1))


@case("language", "early_exit")
def _(k: Launch) -> None:
    for n in (70, 96, 33, 1):
        x, y = torch.randint(0, 99, (n,), dtype=torch.int32), empty(n, dtype=torch.int32)
        k(x, y, n)
        b = x.roll(-1) - x
        extra = (
            1000 * int((b > 40).any())
            + 10_000 * int((b > -1000).all())
            + 100_000 * int((b > 0).sum())
        )
        close(y, b.roll(1) + extra, 0)


@case("language", "warp_words")
def _(k: Launch) -> None:
    x, y = torch.randint(0, 8, (64,), dtype=torch.int32), empty(64, dtype=torch.int32)
    k(x, y)
    for w in range(2):
        v = x[32 * w : 32 * w + 32]
        for lane in range(32):
            want = int((v & 1).sum()) + 100 * int((v == 7).any()) + 200
            want += 1000 * int((v & 15).max()) + 100_000 * int((v % 4 == v[lane] % 4).sum())
            want += 10_000_000 * int(v[lane // 8 * 8 + 3] & 15)
            want += int(v[15] & 7) if lane < 16 else 0
            assert int(y[32 * w + lane]) == want, (w, lane)


@case("language", "unrolled_sum")
def _(k: Launch) -> None:
    x, y = torch.randint(-50, 50, (10_007,), dtype=torch.int32), empty(1, dtype=torch.int32)
    k(x, y, x.numel())
    close(y[0], x.sum().int(), 0)


@case("language", "bad_launch")
def _(k: Launch) -> None:
    assert k(R(1)) == 9


@case("macros", "unary_twice")
def _(k: Launch) -> None:
    x, y = R(1001), empty(1001)
    assert k(x, y, 1001) == 0
    close(y, x + x, 0)


@case("macros", "unary_square")
def _(k: Launch) -> None:
    x, y = R(1001), empty(1001)
    assert k(x, y, 1001) == 0
    close(y, x * x, 0)


@case("macros", "unary_shifted")
def _(k: Launch) -> None:
    x, y = R(1001), empty(1001)
    assert k(x, y, 1001) == 0
    close(y, x + 128, 0)


@case("macros", "warp_sums_f32")
def _(k: Launch) -> None:
    x, y = R(50, 32), empty(50)
    assert k(x, y, 50) == 0
    close(y, x.sum(1), 1e-5)


@case("macros", "warp_sums_int")
def _(k: Launch) -> None:
    x, y = torch.randint(-9, 9, (50, 32), dtype=torch.int32), empty(50, dtype=torch.int32)
    assert k(x, y, 50) == 0
    close(y, x.sum(1).int(), 0)


@case("macros", "binary")
def _(k: Launch) -> None:
    a, b = R(777), R(777)
    for which, want in enumerate((a + b, a - b, a * b)):
        y = empty(777)
        k(a, b, y, 777, which)
        close(y, want, 0)


@case("macros", "reverse_128")
def _(k: Launch) -> None:
    x, y = R(128), empty(128)
    k(x, y)
    close(y, x.flip(0), 0)


@case("pointers", "pointers")
def _(k: Launch) -> None:
    for way in range(19):
        for which in range(4):
            x, y = R(50), empty(50)
            assert k(x, y, 50, which, way) == 0, (way, which)
            want = (x.roll(-1), -x, x + 2, x)[which]
            assert torch.equal(y, want), (way, which)


@case("pointers", "about_kernels")
def _(k: Launch) -> None:
    answers = empty(5, dtype=torch.int32)
    assert k(answers) == 0
    assert answers.tolist() == [8, 256, 6, 1, 3]


@case("complex", "complex_filter")
def _(k: Launch) -> None:
    x, f, y, size = R(300, 2), R(300, 2), empty(300, 2), empty(300)
    k(x, f, y, size, 300)
    a, b = torch.view_as_complex(x.double()), torch.view_as_complex(f.double())
    want = (a * b + a.conj()) / (b - (3 + 0.25j))
    close(y, torch.view_as_real(want).float())
    close(size, want.abs().float())


@case("complex", "complex_product")
def _(k: Launch) -> None:
    x, f, y = R(300, 2).double(), R(300, 2).double(), empty(300, 2, dtype=torch.float64)
    k(x, f, y, 300)
    want = torch.view_as_complex(x) * torch.view_as_complex(f) + 0.5
    close(y, torch.view_as_real(want), 1e-12)


@case("style", "fused_act")
def _(k: Launch) -> None:
    x, bias = R(1024), R(32)
    for act in range(3):
        for with_bias in (False, True):
            y = empty(1024)
            byte = (ctypes.c_uint8, act)
            assert k(x, bias, y, (ctypes.c_int64, 1024), 32, byte, with_bias) == 0
            sums = (x.view(32, 32) + bias * with_bias).view(-1)
            close(y, (sums, sums.relu(), sums * sums)[act], 0)


@case("style", "fused_half")
def _(k: Launch) -> None:
    x, bias, y = R(1024).half(), R(64).half(), empty(1024, dtype=torch.float16)
    assert k(x, bias, y, 1024, 64) == 0
    close(y, (x.float().view(-1, 64) + bias.float()).relu().view(-1).half(), 0)


@case("style", "sum_style")
def _(k: Launch) -> None:
    x, y = R(5000), empty(1)
    assert k(x, y, 5000) == 0
    close(y[0], x.double().sum().float(), 1e-4)


@case("style", "chain")
def _(k: Launch) -> None:
    x, y = R(5000), empty(5000)
    assert k(x, y, 5000) == 0
    close(y, (x + 1) * 2 - 3)


@case("style", "indexer")
def _(k: Launch) -> None:
    y = empty(100)
    assert k(y, 100) == 0
    i = torch.arange(100)
    close(y, 0.5 + i % 2 + i + 2, 0)


@case("ways", "ways")
def _(k: Launch) -> None:
    x = R(64)
    one, two, three = x.flip(0) + 1, x * 2, x - 3
    full = torch.full((64,), 64.0)
    wanted = (one, three, three, two, full, two, one * 2, three, two, two, two, one, two)
    for which, want in enumerate(wanted):
        y = x.clone()
        code = k(y, 64, which)
        # These two count in lambdas of the host.
        assert code == {4: 64, 5: 64 - 64 * 63 // 2}.get(which, 0), which
        assert torch.equal(y, want), which


@case("tables", "cube_f32")
def _(k: Launch) -> None:
    x, y = R(1000), empty(1000)
    k(x, y, (ctypes.c_size_t, 1000))
    close(y, x**3, 1e-5)


@case("tables", "tiles")
def _(k: Launch) -> None:
    for n in (8, 16, 32):
        y = empty(64, dtype=torch.int32)
        assert k(y, (ctypes.c_uint8, n)) == 0
        close(y, (torch.arange(64) % n + n).int(), 0)


@case("tables", "tiles_table")
def _(k: Launch) -> None:
    for n in (8, 16, 32):
        y = empty(64, dtype=torch.int32)
        assert k(y, n) == 0
        close(y, (torch.arange(64) % n + n).int(), 0)


@case("tables", "use_globals")
def _(k: Launch) -> None:
    y = empty(32)
    k(y)
    close(y, (torch.arange(32) % 3 + 1).float(), 0)


@case("tables", "warp_reduce")
def _(k: Launch) -> None:
    x, y = R(32), empty(32)
    k(x, y)
    close(y, x.sum().expand(32), 1e-5)


@case("gemm_cublas", "linear_relu_cublas")
def _(k: Launch) -> None:
    for rows, i, o in ((37, 300, 110), (1, 5, 3), (200, 64, 400)):
        x, w, b, y = R(rows, i), R(o, i), R(o), empty(rows, o)
        assert k(x, w, b, y, rows, i, o) == 0
        close(y, F.relu(F.linear(x, w, b)), 1e-4)


@case("gemm_cublas", "bmm_cublas")
def _(k: Launch) -> None:
    a, b, c = R(4, 33, 50), R(4, 50, 70), empty(4, 33, 70)
    assert k(a, b, c, 4, 33, 70, 50) == 0
    close(c, a @ b, 1e-4)


@case("gemm_cublas", "hgemm_cublas")
def _(k: Launch) -> None:
    a, b, c = R(40, 96).half(), R(96, 50).half(), empty(40, 50, dtype=torch.float16)
    assert k(a, b, c, 40, 50, 96) == 0
    close(c, (a.float() @ b.float()).half(), 4e-3)


@case("gemm_cublas", "gemm_of_any_type")
def _(k: Launch) -> None:
    long = ctypes.c_longlong
    a, b = R(3, 20, 70).bfloat16(), R(3, 50, 70).bfloat16()
    c = R(3, 20, 50)
    want = 0.5 * (a.float() @ b.float().mT) + 2 * c
    strides = (long, 50 * 70), (long, 20 * 70), (long, 20 * 50)
    sizes = (50, 20, 70, 14, 14, 0, 70, 70, 50)
    assert k(b, a, c, 1, 0, *sizes, *strides, 3, 0.5, 2.0, 68, -1) == 0
    close(c, want, 1e-4)


def main() -> int:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    failed = 0
    for library, name, body in CASES:
        torch.manual_seed(20)
        try:
            body(Launch(ctypes.CDLL(str(folder / f"{library}.so")), name))
            print(f"ok {library}.{name}")
        except Exception as error:  # every case is tried, and each says what was wrong
            failed += 1
            print(f"FAILED {library}.{name}: {error}")
    print(f"{len(CASES)} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
