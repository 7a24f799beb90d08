"""Value ranges of tensors: how to sample them, and for which of them an operator's results are
finite."""

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Draw:
    """Uniform samples from `low` to `high`; for integers `high` is excluded; or truth values."""

    dtype: str
    low: float
    high: float


# Benign values, the most widely allowed first: inside (0, 1), above 1, around 0.
BENIGN = (Draw("float32", 0.2, 0.8), Draw("float32", 1.2, 1.8), Draw("float32", -1.0, 1.0))
INDEX = Draw("int64", 0, 2)
TRUTH = Draw("bool", 0, 2)

# The real line in cells: an operator's domain is the set of cells where its results are finite.
CELLS: tuple[tuple[str, float, float], ...] = (
    ("below -1", -6.0, -1.05),
    ("-1", -1.0, -1.0),
    ("-1 to 0", -0.95, -0.05),
    ("0", 0.0, 0.0),
    ("0 to 1", 0.05, 0.95),
    ("1", 1.0, 1.0),
    ("above 1", 1.05, 6.0),
)

# Domains by the cells that they need, the widest first. The names are the catalogue's vocabulary.
DOMAINS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("any", (0, 1, 2, 3, 4, 5, 6)),
    ("nonzero", (0, 1, 2, 4, 5, 6)),
    ("above_minus_one", (2, 3, 4, 5, 6)),
    ("non_negative", (3, 4, 5, 6)),
    ("positive", (4, 5, 6)),
    ("at_least_one", (5, 6)),
    ("above_one", (6,)),
    ("closed_unit_ball", (1, 2, 3, 4, 5)),
    ("open_unit_ball", (2, 3, 4)),
    ("closed_unit", (3, 4, 5)),
    ("open_unit", (4,)),
)

# Samples for each domain when a form is verified.
DRAWS: dict[str, Draw] = {
    "any": Draw("float32", -3.0, 3.0),
    "nonzero": Draw("float32", 0.5, 2.0),
    "above_minus_one": Draw("float32", -0.9, 2.0),
    "non_negative": Draw("float32", 0.0, 2.0),
    "positive": Draw("float32", 0.1, 2.0),
    "at_least_one": Draw("float32", 1.0, 3.0),
    "above_one": Draw("float32", 1.1, 3.0),
    "closed_unit_ball": Draw("float32", -1.0, 1.0),
    "open_unit_ball": Draw("float32", -0.9, 0.9),
    "closed_unit": Draw("float32", 0.0, 1.0),
    "open_unit": Draw("float32", 0.05, 0.95),
    "integer": Draw("int64", 0, 8),
    "bool": TRUTH,
}


def draw(shape: tuple[int, ...], values: Draw, generator: torch.Generator) -> torch.Tensor:
    """A tensor of such samples."""
    if values.dtype == "bool":
        return torch.randint(0, 2, shape, generator=generator).bool()
    if values.dtype == "int64":
        return torch.randint(int(values.low), int(values.high), shape, generator=generator)
    span = values.high - values.low
    tensor = torch.rand(shape, generator=generator) * span + values.low
    return tensor.to(getattr(torch, values.dtype))


def learn(works: Callable[[Draw], bool]) -> str | None:
    """The domain of one tensor: tests in each cell whether results are finite."""
    good = {i for i, (_, low, high) in enumerate(CELLS) if works(Draw("float32", low, high))}
    for name, needed in DOMAINS:
        # Test the cells together: some operators are finite in each cell but not across cells.
        if good.issuperset(needed) and works(DRAWS[name]):
            return name
    return None


def example_text(domain: str, shape: tuple[int, ...], bound: int | None) -> str:
    """Python that samples such a tensor, as a person would write it."""
    dims = ", ".join(str(n) for n in shape)
    if bound is not None:
        return f"torch.randint(0, {bound}, ({dims}{',' if len(shape) == 1 else ''}))"
    tuple_text = f"({dims}{',' if len(shape) == 1 else ''})"
    plain = dims or "()"
    texts = {
        "any": f"torch.randn({plain})",
        "nonzero": f"torch.rand({plain}) + 0.5",
        "above_minus_one": f"torch.rand({plain}) - 0.5",
        "non_negative": f"torch.rand({plain})",
        "positive": f"torch.rand({plain}) + 0.1",
        "at_least_one": f"torch.rand({plain}) + 1.0",
        "above_one": f"torch.rand({plain}) + 1.1",
        "closed_unit_ball": f"torch.rand({plain}) * 2.0 - 1.0",
        "open_unit_ball": f"torch.rand({plain}) * 1.8 - 0.9",
        "closed_unit": f"torch.rand({plain})",
        "open_unit": f"torch.rand({plain}) * 0.9 + 0.05",
        "integer": f"torch.randint(0, 8, {tuple_text})",
        "bool": f"torch.rand({plain}) < 0.5",
    }
    return texts[domain]
