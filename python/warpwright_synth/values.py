"""Values to try for attributes, by name and kind of an argument.

They depend on torch's argument names and not on the operator: `dim` always is a dimension. A call
then shows the effect of a value.
"""

from .signature import Argument

# Integers that are not sizes: small, and the same at all sizes.
FIXED: dict[str, tuple[str, ...]] = {
    "dim": ("-1", "1", "0"),
    "axis": ("-1", "1"),
    "dim0": ("1",),
    "dim1": ("2", "0"),
    "axis0": ("1",),
    "axis1": ("2", "0"),
    "start_dim": ("1", "0"),
    "end_dim": ("-1",),
    "dims": ("[-1]", "[0, 1]", "[1, 0]", "[0, 2, 1]", "[0, 2, 3, 1]", "2"),
    "kernel_size": ("3", "2"),
    "stride": ("2",),
    "padding": ("1",),
    "output_padding": (),
    "dilation": ("2",),
    "groups": ("2",),
    "num_groups": ("4",),
    "num_heads": ("4",),
    "nhead": ("4",),
    "num_layers": ("1",),
    "num_key_value_heads": ("2",),
    "output_size": ("1", "4"),
    "upscale_factor": ("2",),
    "downscale_factor": ("2",),
    "scale_factor": ("2", "2.0"),
    "scale_factors": ("[2.0, 2.0]",),
    "block_size": ("2",),
    "k": ("2", "1"),
    "n": ("2",),
    "n_rep": ("2",),
    "N": ("4",),
    "diagonal": ("1",),
    "offset": ("1",),
    "sizes": ("[2, -1]",),
    "unflattened_size": ("(2, -1)",),
    "shifts": ("1", "2"),
    "chunks": ("2",),
    "split_size": ("2",),
    "split_size_or_sections": ("2",),
    "indices_or_sections": ("2",),
    "sections": ("2",),
    "repeats": ("2", "[2, 1]", "[2, 1, 1]"),
    "index": ("0", "1"),
    "start": ("1",),
    "end": ("-1",),
    "length": ("2",),
    "step": ("1",),
    "size": ("3", "[-1]", "[4]"),
    "pad": ("[1, 1]", "[1, 1, 1, 1]", "[2, 0]"),
    "padding_idx": (),
    "lambd": ("0.5",),
    "p": ("2",),
    "ord": ("2", "1"),
    "degree": ("2",),
    "partitions": ("2",),
    "n_segment": ("2",),
    "correction": ("0",),
    "unfold_size": ("2",),
    "dimension": ("-1", "1"),
    "source": ("0",),
    "destination": ("-1",),
    "dim_feedforward": (),
    "sorted": (),
}

# Numbers by name; the last entry is the default.
NUMBERS: dict[str, tuple[str, ...]] = {
    "min": ("-0.5", "0.0"),
    "max": ("0.5",),
    "min_val": ("-0.5",),
    "max_val": ("0.5",),
    "threshold": ("0.1",),
    "lower": ("0.1",),
    "upper": ("0.3",),
    "negative_slope": ("0.2",),
    "alpha": ("0.5",),
    "beta": ("2.0",),
    "eps": ("1e-06",),
    "exponent": ("2", "3", "0.5"),
    "p": ("2.0", "1.0"),
    "margin": ("0.5",),
    "q": ("0.5",),
    "base": ("2.0",),
    "rtol": (),
    "atol": (),
    "*": ("0.5", "2.0"),
}

# Attributes that are valid only together.
TOGETHER: tuple[dict[str, str], ...] = (
    {"kernel_size": "3", "padding": "1"},
    {"kernel_size": "3", "stride": "2", "padding": "1"},
    {"kernel_size": "1"},
    {"kernel_size": "5", "padding": "2"},
    {"kernel_size": "3", "padding": "1", "groups": "2"},
    {"kernel_size": "3", "padding": "2", "dilation": "2"},
    {"kernel_size": "4", "stride": "2", "padding": "1"},
    {"stride": "1", "padding": "1"},
    {"dim": "-1", "keepdim": "True"},
    {"dim": "1", "keepdim": "True"},
    {"dim": "(-2, -1)"},
    {"dim": "(-2, -1)", "keepdim": "True"},
    {"scale_factor": "2", "mode": "'bilinear'"},
    {"scale_factor": "2", "mode": "'nearest'"},
    {"min": "-0.5", "max": "0.5"},
)

# Flags that change the place or format of a result, not its values.
DULL_FLAGS = {
    "inplace", "sparse", "requires_grad", "pin_memory", "cudnn_enable", "cudnn_enabled", "training",
    "scale_grad_by_freq", "sparse_grad", "train", "recompute_scale_factor", "cache", "device",
    "size_average", "reduce", "non_blocking", "copy", "add_zero_attn", "check_errors",
}  # fmt: skip


def is_size(argument: Argument) -> bool:
    """Whether an integer is the size of a dimension, to be inferred like one."""
    return argument.kind == "int" and argument.required and argument.name not in FIXED


def choices(argument: Argument) -> tuple[str, ...]:
    """Texts of values to try, the most usual first."""
    name, kind = argument.name, argument.kind
    if kind in ("int", "ints"):
        if name in FIXED:
            return FIXED[name]
        return ("[2]", "[-1]") if kind == "ints" else ("2",)
    if kind in ("float", "number"):
        return NUMBERS.get(name, NUMBERS["*"])
    if kind == "floats":
        return ("[2.0, 2.0]",)
    if kind == "bool":
        if name in DULL_FLAGS:
            return ()
        return (str(not argument.default),)
    if kind == "str":
        return tuple(repr(word) for word in argument.words)
    return ()
