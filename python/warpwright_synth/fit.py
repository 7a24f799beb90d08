"""Fits expressions over sizes of inputs to sizes of results, from examples.

Expressions are Python: `A`, `3`, `A*B`, `A - B + 1`, `(A - 3)//2 + 1`, `min(A, B)`. The fit returns
the simplest expression that explains all examples. The caller verifies it on further examples.
"""

from collections.abc import Iterator

Sample = dict[str, int]


def affine(symbol: str, factor: int, offset: int) -> str:
    """`2*A + 3` in its shortest form."""
    text = symbol if factor == 1 else f"{factor}*{symbol}"
    if offset:
        text += f" {'+' if offset > 0 else '-'} {abs(offset)}"
    return text


def windows(symbol: str) -> Iterator[str]:
    """Numbers of windows: floor((n + a) / s) + c."""
    for step in (2, 3, 4, 5, 8):
        for offset in sorted(range(-9, 8), key=lambda o: (abs(o), o)):
            inner = symbol if offset == 0 else f"({affine(symbol, 1, offset)})"
            yield f"{inner}//{step}"
            yield f"{inner}//{step} + 1"


def candidates(symbols: list[str], samples: list[Sample], values: list[int]) -> Iterator[str]:
    """Expressions, the simplest first. `symbols` are in the order of their use in the inputs."""
    yield from symbols
    if len(set(values)) == 1:
        yield str(values[0])
    for s in symbols:
        sizes = [sample[s] for sample in samples]
        pair = next(
            ((i, j) for i in range(len(sizes)) for j in range(i) if sizes[i] != sizes[j]), None
        )
        if pair is not None:
            i, j = pair
            rise, run = values[i] - values[j], sizes[i] - sizes[j]
            if rise % run == 0 and rise:
                factor = rise // run
                yield affine(s, factor, values[i] - factor * sizes[i])
    for i, s in enumerate(symbols):
        for t in symbols[i + 1 :]:
            yield f"{s}*{t}"
            yield f"{s} + {t}"
            for low, high in ((s, t), (t, s)):
                offset = values[0] - (samples[0][high] - samples[0][low])
                yield affine(f"{high} - {low}", 1, offset)
            yield f"min({s}, {t})"
            yield f"max({s}, {t})"
            base = samples[0][s] * samples[0][t]
            if base and values[0] % base == 0:
                yield f"{values[0] // base}*{s}*{t}"
            yield f"{s} + {t} - 1"
    for s in symbols:
        yield f"{s}*{s}"
        yield f"{s}*({s} + 1)//2"
        yield f"{s}*({s} - 1)//2"
        yield from windows(s)
    for i, s in enumerate(symbols):
        for j, t in enumerate(symbols[i + 1 :], i + 1):
            for u in symbols[j + 1 :]:
                yield f"{s}*{t}*{u}"
                yield f"{s} + {t} + {u}"
                base = samples[0][s] * samples[0][t] * samples[0][u]
                if base and values[0] % base == 0:
                    yield f"{values[0] // base}*{s}*{t}*{u}"
    if 3 < len(symbols) < 6:
        for skip in symbols:
            yield "*".join(s for s in symbols if s != skip)
    yield "*".join(symbols) or "1"


def value_of(expression: str, sample: Sample) -> int:
    """The expression's value. It may use the names in the sample and no others."""
    return eval(expression, {"__builtins__": {}, "min": min, "max": max}, sample)


def fit(symbols: list[str], samples: list[Sample], values: list[int]) -> str | None:
    """The simplest expression that gives `values` at `samples`."""
    for expression in candidates(symbols, samples, values):
        if all(value_of(expression, s) == v for s, v in zip(samples, values, strict=True)):
            return expression
    return None
