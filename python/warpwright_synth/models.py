"""Modules and functions of transformers that work alone, found in its model code.

A class is tried if its constructor takes sizes, or a config of which it reads a few plain
attributes. Tasks then pass a namespace with only these.
"""

import ast
import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .forms import Target
from .signature import TENSOR, TENSORS, from_python

# Longest body of a small module, in lines of source.
MAX_LINES = 60
# Largest number of probed targets: importing a model's file takes seconds.
MAX_TARGETS = 230

# Attributes of configs that are tensor sizes; others keep the config's own value.
SIZES = re.compile(
    r"(hidden|intermediate|ffn|inner|embed|embedding|proj|projection|model|in|out|head)"
    r"(_size|_dim|_dims|_features|_channels)$|^(d_model|d_ff|d_inner|n_embd|dim|channels)$"
)
# Names in a body that show a need for more than tensors: caches, losses, other models.
NEEDS_MORE = re.compile(
    r"PreTrainedModel|AutoModel|Cache\b|past_key|GradientCheckpoint|ModelOutput|"
    r"CrossEntropy|MSELoss|loss_function|distributed|random|dropout\("
)


@dataclass(frozen=True)
class Found:
    """A class or function in a model's file."""

    module: str
    name: str
    kind: str
    lines: int
    config: tuple[str, ...]


def without_names(node: ast.AST, name: str) -> str:
    """The tree as text, without documentation, annotations and the class's or function's own
    name."""
    for part in ast.walk(node):
        if isinstance(part, (ast.FunctionDef, ast.ClassDef)):
            body = part.body
            if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
                part.body = body[1:] or [ast.Pass()]
            part.decorator_list = []
        if isinstance(part, ast.arg):
            part.annotation = None
        if isinstance(part, ast.FunctionDef):
            part.returns = None
    model = re.match(r"[A-Z][a-z0-9]+", name)
    text = ast.dump(node).replace(name, "_")
    return text.replace(model.group(0), "_") if model else text


def config_attributes(node: ast.ClassDef) -> tuple[str, ...]:
    """The attributes that a class reads from its config."""
    names = []
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and (
            (isinstance(part.value, ast.Name) and part.value.id == "config")
            or (isinstance(part.value, ast.Attribute) and part.value.attr == "config")
        ):
            names.append(part.attr)
    return tuple(dict.fromkeys(names))


def read(path: Path, module: str, seen: set[str]) -> list[Found]:
    """The small modules and functions of one file whose source is not in `seen`."""
    source = path.read_text(encoding="utf-8")
    found = []
    for node in ast.parse(source).body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)) or node.name.startswith("_"):
            continue
        lines = (node.end_lineno or 0) - node.lineno + 1
        text = ast.get_source_segment(source, node) or ""
        if lines > MAX_LINES or NEEDS_MORE.search(text):
            continue
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(b) for b in node.bases]
            if not any(b in ("nn.Module", "torch.nn.Module") for b in bases):
                continue
            kind, config = "module", config_attributes(node)
        else:
            if "torch" not in text and "view" not in text and "shape" not in text:
                continue
            kind, config = "function", ()
        shape = without_names(node, node.name)
        if shape in seen:
            continue
        seen.add(shape)
        found.append(Found(module, node.name, kind, lines, config))
    return found


def text_of_value(name: str, value: Any) -> str | None:
    """An attribute of a config as Python text, or a placeholder for a size."""
    if "drop" in name or name == "layerdrop":
        return "0.0"
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int):
        if SIZES.search(name):
            return f"{{{name}}}"
        if name in ("num_attention_heads", "num_heads", "n_head", "encoder_attention_heads"):
            return "4"
        if name in ("num_key_value_heads", "num_kv_heads"):
            return "2"
        return repr(value) if value <= 4096 else "16"
    if isinstance(value, (float, str)):
        return repr(value)
    if isinstance(value, (list, tuple)) and len(value) <= 4 and len(repr(value)) < 60:
        return repr(value)
    return None


def config_text(module: Any, cls: type, found: Found) -> str | None:
    """`SimpleNamespace(...)` with the attributes that the class reads, from the model's own
    config."""
    parameter = from_annotation(module, cls)
    if parameter is None:
        return None
    try:
        config = parameter()
    except Exception:
        return None
    parts = []
    for name in found.config:
        if not hasattr(config, name):
            continue
        if name == "_attn_implementation":
            parts.append("_attn_implementation='eager'")
            continue
        text = text_of_value(name, getattr(config, name))
        if text is None:
            return None
        parts.append(f"{name}={text}")
    return f"SimpleNamespace({', '.join(parts)})" if parts else None


def from_annotation(module: Any, cls: type) -> type | None:
    """The config class of a constructor: its annotation, or the only one in the file."""
    import inspect

    parameter = inspect.signature(cls).parameters.get("config")
    if parameter is None:
        return None
    if inspect.isclass(parameter.annotation):
        return parameter.annotation
    names = re.findall(r"\w+Config\b", str(parameter.annotation))
    names += [n for n in dir(module) if n.endswith("Config") and n != "PretrainedConfig"]
    return next((c for n in names if inspect.isclass(c := getattr(module, n, None))), None)


def init_texts(module: Any, cls: type, found: Found) -> list[str]:
    """Constructor calls of the class as text."""
    arguments = from_python(cls)
    if arguments is None:
        return []
    parts = []
    for a in arguments:
        if not a.required:
            continue
        if a.name == "config":
            text = config_text(module, cls, found)
            if text is None:
                return []
        elif a.name in ("layer_idx", "layer_id", "layer_index"):
            text = "0"
        elif a.name in ("num_heads", "num_attention_heads", "n_heads", "num_groups"):
            text = "4"
        elif a.name in ("kernel_size", "patch_size", "stride"):
            text = "3"
        elif a.kind == "int":
            text = f"{{{a.name}}}"
        elif a.kind == "float":
            text = "1e-06" if "eps" in a.name else "0.5"
        elif a.kind == "str":
            text = "'gelu'"
        elif a.kind == "bool":
            text = "True"
        else:
            return []
        parts.append(text)
    return [f"{found.name}({', '.join(parts)})"]


def target_of(found: Found) -> tuple[Target | None, str]:
    """The target to probe, or the reason why there is none."""
    try:
        module = importlib.import_module(found.module)
        owner = getattr(module, found.name)
    except Exception as error:
        return None, f"cannot be imported: {type(error).__name__}"
    full = f"{found.module}.{found.name}"
    imports = [f"from {found.module} import {found.name}"]
    namespace = {found.name: owner}
    if found.kind == "function":
        arguments = from_python(owner)
        if not arguments or not any(a.kind in (TENSOR, TENSORS) for a in arguments):
            return None, "no signature with a tensor"
        return Target(full, "function", found.name, [arguments], [], namespace, imports), ""
    forward = from_python(owner.forward, skip_first=True)
    if not forward or not any(a.kind in (TENSOR, TENSORS) for a in forward):
        return None, "no signature with a tensor"
    texts = init_texts(module, owner, found)
    if not texts:
        return None, "its constructor wants more than sizes or a plain config"
    if any("SimpleNamespace" in t for t in texts):
        from types import SimpleNamespace

        namespace["SimpleNamespace"] = SimpleNamespace
        imports.insert(0, "from types import SimpleNamespace")
    arguments = from_python(owner) or []
    return Target(full, "module", found.name, [arguments], forward, namespace, imports, texts), ""


def all_of_transformers() -> tuple[list[Target], list[dict[str, str]]]:
    """The targets to probe, the smallest first, and the excluded ones with reasons."""
    import transformers

    root = Path(transformers.__file__).parent / "models"
    seen: set[str] = set()
    found: list[Found] = []
    for path in sorted(root.glob("*/modeling_*.py")):
        if not re.search(r"modeling_(tf|flax)_", path.name):
            module = f"transformers.models.{path.parent.name}.{path.stem}"
            found += read(path, module, seen)
    found.sort(key=lambda f: (f.lines, f.module, f.name))
    targets, out = [], []
    for one in found:
        if len(targets) >= MAX_TARGETS:
            break
        target, reason = target_of(one)
        if target is None:
            out.append({"name": f"{one.module}.{one.name}", "reason": reason})
        else:
            targets.append(target)
    return targets, out
