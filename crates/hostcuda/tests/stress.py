"""Looks for races: the same launches again and again, from several host threads, must give the same
bits. Usage: stress.py FOLDER SECONDS. Exits with 1 on the first difference.
"""

import ctypes
import sys
import threading
import time
from pathlib import Path

import torch


def main() -> int:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    names = ("movement", "softmax", "norm", "matmul", "reduce", "groups", "language")
    lib = {n: ctypes.CDLL(str(folder / f"{n}.so")) for n in names}
    torch.manual_seed(1)
    x = torch.randn(257, 259)
    square = torch.randn(192, 192)
    weight = torch.randn(259)
    words = torch.randint(0, 8, (64,), dtype=torch.int32)
    lengths = torch.randint(1, 260, (257,), dtype=torch.int32)
    null = ctypes.c_void_p(0)
    eps = ctypes.c_float(1e-5)

    def p(t: torch.Tensor) -> ctypes.c_void_p:
        return ctypes.c_void_p(t.data_ptr())

    def ints(*v: int) -> list[ctypes.c_int]:
        return [ctypes.c_int(i) for i in v]

    def launches(o: torch.Tensor, i: torch.Tensor) -> list[tuple[str, object]]:
        """Name and thunk of every launch; `o` and `i` are this thread's outputs."""
        m, s, n = lib["movement"], lib["softmax"], lib["norm"]
        one = ctypes.c_float(1.0)
        return [
            ("transpose", lambda: m.transpose_f32(p(x), p(o), *ints(257, 259), null)),
            (
                "row_softmax",
                lambda: s.row_softmax(p(x), p(weight), p(o), *ints(257, 259), one, null),
            ),
            ("warp_softmax", lambda: s.warp_softmax(p(x), p(o), *ints(257, 259), null)),
            (
                "layernorm",
                lambda: n.layernorm(p(x), p(weight), p(weight), p(o), *ints(257, 259), eps, null),
            ),
            ("logsumexp", lambda: s.logsumexp(p(x), p(o), *ints(257, 259), null)),
            (
                "tiled",
                lambda: lib["matmul"].matmul_tiled(
                    p(square), p(square), p(o), *ints(192, 192, 192), null
                ),
            ),
            ("cumsum", lambda: lib["reduce"].cumsum(p(x), p(o), *ints(257, 259), null)),
            ("argmax", lambda: lib["reduce"].argmax(p(x), p(i), *ints(257, 259), null)),
            (
                "ragged",
                lambda: lib["groups"].ragged_max(p(x), p(lengths), p(o), *ints(257, 259), null),
            ),
            ("row_sum", lambda: lib["groups"].group_row_sum(p(x), p(o), *ints(257, 259), null)),
            ("words", lambda: lib["language"].warp_words(p(words), p(i), null)),
        ]

    def fresh() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((257 * 259,), -7.0), torch.full((512,), -7, dtype=torch.int32)

    o, i = fresh()
    want: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for name, call in launches(o, i):
        o.fill_(-7)
        i.fill_(-7)
        call()  # type: ignore[operator]
        want[name] = (o.clone(), i.clone())

    stop = time.monotonic() + seconds
    wrong: list[str] = []
    counts = [0] * 4

    def worker(which: int) -> None:
        mine, mine_i = fresh()
        order = launches(mine, mine_i)
        order = order[which:] + order[:which]
        while time.monotonic() < stop and not wrong:
            for name, call in order:
                mine.fill_(-7)
                mine_i.fill_(-7)
                call()  # type: ignore[operator]
                counts[which] += 1
                if not (torch.equal(mine, want[name][0]) and torch.equal(mine_i, want[name][1])):
                    wrong.append(f"{name} differs in thread {which} after {counts[which]} launches")
                    return

    threads = [threading.Thread(target=worker, args=(w,)) for w in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(f"{sum(counts)} launches", *wrong, sep="\n")
    return 1 if wrong or min(counts) == 0 else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
