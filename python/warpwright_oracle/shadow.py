"""Torch operators on device tensors where there is no device.

While memory is open (constructor and ``prepare()``), operators run on the host, on the same memory.
Later an operator makes memory or a view, becomes a fill or a copy of the recording, or is refused
by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from .dispatch import OperatorMode
from .stub_runtime import StubRuntime

MEMORY = {
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "set_",
    "resize_",
    "_unsafe_view",
    "record_stream",
    "is_pinned",
    "is_same_size",
}
"""Operators that allocate or describe memory. Views are recognised by their schema."""
FACTORIES: dict[str, tuple[str, float | None]] = {
    "zeros": ("empty", 0),
    "ones": ("empty", 1),
    "full": ("empty", None),
    "new_zeros": ("new_empty", 0),
    "new_ones": ("new_empty", 1),
    "new_full": ("new_empty", None),
    "zeros_like": ("empty_like", 0),
    "ones_like": ("empty_like", 1),
    "full_like": ("empty_like", None),
    "scalar_tensor": ("empty", None),
}
"""Operators that allocate and fill: the one that allocates, and the value (None: an argument)."""
READS = {"_local_scalar_dense": ".item()", "equal": "torch.equal"}
"""Operators whose result on the host depends on values of the device, and what calls them."""
TOO_LATE = "prepare() computes with torch after it launched kernels"


class DeviceMode(OperatorMode):
    """Handles every operator that has a device tensor, or makes one."""

    device = "cuda"
    """Where device tensors are made."""

    def __init__(self, runtime: StubRuntime) -> None:
        super().__init__()
        self.runtime = runtime
        self.phase = "init"
        self.generators: dict[int, torch.Generator] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Runs one operator."""
        kwargs = kwargs or {}
        if not _concerns_device(args) and not _concerns_device(tuple(kwargs.values())):
            return func(*args, **kwargs)
        if func.namespace != "aten":  # the candidate's own, or one that the library refuses
            return func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        self.runtime.note(f"in torch operator {name}")
        try:
            if name in MEMORY or torch.Tag.inplace_view in func.tags or _is_view(func):
                return func(*args, **kwargs)
            if self.runtime.memory_open() and not self.runtime.capturing():
                return self.on_host(func, args, kwargs)
            return self.recorded(name, func, args, kwargs)
        finally:
            self.runtime.note("outside of torch's operators")

    def refuse(self, name: str, reason: str = "") -> None:
        """Ends the recording because of an operator."""
        said = f"torch operator {name}{reason and f' ({reason})'}"
        if name in READS:
            said = f"reads device memory on the host ({READS[name]})"
        late = self.phase == "prepare" and not self.runtime.memory_open()
        self.runtime.refuse(f"{TOO_LATE} ({said})" if late else said)

    # While memory is open.

    def on_host(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs an operator on the host, with every device tensor replaced by an alias."""
        if func is torch.ops.aten._to_copy.default and not args[0].is_cuda:
            return self._sent(args[0], kwargs)
        originals: dict[int, torch.Tensor] = {}
        aliases: list[torch.Tensor] = []

        def to_host(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.is_cuda:
                aliases.append(host_alias(value))
                originals[id(aliases[-1])] = value
                return aliases[-1]
            if isinstance(value, torch.device) and value.type == "cuda":
                return torch.device("cpu")
            if isinstance(value, torch.Generator) and value.device.type == "cuda":
                return self._host_generator(value)
            return value

        on_device = kwargs.get("device") is None or torch.device(kwargs["device"]).type == "cuda"
        result = func(*tree_map(to_host, args), **tree_map(to_host, kwargs))
        given = {id(value) for value in _leaves((args, kwargs)) if isinstance(value, torch.Tensor)}

        def back(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or id(value) in given:
                return value
            if id(value) in originals:
                return originals[id(value)]
            return self._to_device(value, aliases, originals) if on_device else value

        return tree_map(back, result)

    def _sent(self, source: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
        """A host tensor copied to the device at once: weights can be large."""
        form = kwargs.get("memory_format") or torch.preserve_format
        made = torch.empty_like(
            source, dtype=kwargs.get("dtype"), device="cuda", memory_format=form
        )
        host_alias(made).copy_(source)
        return made

    def _to_device(
        self,
        value: torch.Tensor,
        aliases: list[torch.Tensor],
        originals: dict[int, torch.Tensor],
    ) -> torch.Tensor:
        if value.layout != torch.strided:
            self.runtime.refuse(f"makes a tensor of layout {value.layout} on the device")
        if value.numel():
            start = value.untyped_storage().data_ptr()
            for alias in aliases:
                if alias.untyped_storage().data_ptr() == start:
                    at = value.storage_offset()
                    return originals[id(alias)].as_strided(value.shape, value.stride(), at)
        made = torch.empty_like(value, device="cuda")
        if value.numel():
            host_alias(made).copy_(value)
        return made

    def _host_generator(self, generator: torch.Generator) -> torch.Generator:
        key = id(generator)
        if key not in self.generators:
            self.generators[key] = torch.Generator().manual_seed(generator.initial_seed())
        return self.generators[key]

    # When memory is closed, or while a graph is captured.

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies on the device."""
        return tensor.is_cuda

    def recorded(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Makes an operator a part of the recording, or refuses it."""
        if name in FACTORIES:
            return self._made(name, func, args, kwargs)
        if name in ("zero_", "fill_"):
            return self._filled(name, args[0], args[1] if len(args) > 1 else 0)
        if name == "clone":
            return self._cloned(name, args[0], kwargs.get("memory_format"))
        if name == "copy_":
            return self._copied(name, args[0], args[1])
        if name == "_to_copy":
            return self._converted(name, args[0], kwargs)
        return self.refuse(name)

    def _made(self, name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        empty, value = FACTORIES[name]
        given = dict(zip((a.name for a in func._schema.arguments), args, strict=False))
        given.update(kwargs)
        if value is None:
            value = given.pop("s" if name == "scalar_tensor" else "fill_value")
        if name == "scalar_tensor":
            given["size"] = []
        if name == "full" and given.get("dtype") is None:
            with self.runtime.host_memory():
                given["dtype"] = torch.full((), value).dtype
        allocate: dict[str, Callable[..., torch.Tensor]] = {
            "empty": torch.ops.aten.empty.memory_format,
            "new_empty": torch.ops.aten.new_empty.default,
            "empty_like": torch.ops.aten.empty_like.default,
        }
        return self._filled(name, allocate[empty](**given), value)

    def _filled(self, name: str, tensor: torch.Tensor, value: Any) -> torch.Tensor:
        if isinstance(value, torch.Tensor):
            if self.holds(value):
                self.refuse(name, "with a value of the device")
            value = value.item()
        if not self.holds(tensor) or not is_dense(tensor):
            self.refuse(name, "of elements that are not side by side")
        if tensor.is_conj() or tensor.is_neg():
            self.refuse(name, "of a conjugated or negated view")
        if tensor.numel():
            word, element = self._pattern(name, value, tensor.dtype)
            self.runtime.fill(tensor, word, element)
        return tensor

    def _pattern(self, name: str, value: Any, dtype: torch.dtype) -> tuple[int, int]:
        """The bits of an element, as a word of 1, 2 or 4 bytes, and the word's size."""
        with self.runtime.host_memory():
            stored = torch.full((1,), value, dtype=dtype).view(torch.uint8).tolist()
        element = min(len(stored), 4)
        words = [stored[at : at + element] for at in range(0, len(stored), element)]
        if any(word != words[0] for word in words):
            self.refuse(name, f"with the {len(stored)}-byte value {value}")
        return int.from_bytes(bytes(words[0]), "little"), element

    def _cloned(self, name: str, source: torch.Tensor, form: Any) -> torch.Tensor:
        keep = {} if form is None else {"memory_format": form}
        return self._copied(name, torch.empty_like(source, **keep), source)

    def _converted(self, name: str, source: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
        device, dtype = kwargs.get("device"), kwargs.get("dtype")
        if device is not None and torch.device(device).type != self.device:
            self.refuse(name, "which reads device memory on the host")
        if not self.holds(source):
            source = source if dtype is None else source.to(dtype)
        elif dtype not in (None, source.dtype):
            self.refuse(name, f"from {source.dtype} to {dtype}")
        form = kwargs.get("memory_format") or torch.preserve_format
        made = torch.empty_like(source, device=self.device, memory_format=form)
        return self._copied(name, made, source)

    def _copied(self, name: str, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        if not self.holds(target):
            self.refuse(name, "which reads device memory on the host")
        if not self.holds(source):
            source = source.to(target.dtype).expand(target.shape)
            source = torch.empty_strided(target.shape, target.stride(), dtype=target.dtype).copy_(
                source
            )
        if source.dtype != target.dtype:
            self.refuse(name, f"from {source.dtype} to {target.dtype}")
        if not same_layout(target, source):
            self.refuse(name, "between different layouts, or with gaps")
        if source.is_conj() != target.is_conj() or source.is_neg() != target.is_neg():
            self.refuse(name, "which conjugates or negates")
        if target.numel() and target.data_ptr() != source.data_ptr():
            self.runtime.copy(target, source)
        return target


def host_alias(tensor: torch.Tensor) -> torch.Tensor:
    """A host tensor over the memory of a device tensor."""
    storage = tensor.untyped_storage()
    alias = torch.empty(0, dtype=tensor.dtype)
    if storage.nbytes():
        memory = torch._C._construct_storage_from_data_pointer(
            storage.data_ptr(), torch.device("cpu"), storage.nbytes()
        )
        alias = alias.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())
    else:
        alias = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    alias = alias.conj() if tensor.is_conj() else alias
    return torch._neg_view(alias) if tensor.is_neg() else alias


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether elements lie side by side, each once, in any order of dimensions."""
    behind = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != behind:
            return tensor.numel() == 0
        behind *= size
    return True


def same_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two dense tensors have each element at the same distance from their start."""
    if one.shape != other.shape:
        return False
    pairs = zip(one.stride(), other.stride(), one.shape, strict=True)
    return is_dense(one) and is_dense(other) and all(a == b or n == 1 for a, b, n in pairs)


def _is_view(func: Any) -> bool:
    infos = [result.alias_info for result in func._schema.returns]
    return bool(infos) and all(info is not None and not info.is_write for info in infos)


def _concerns_device(values: tuple[Any, ...]) -> bool:
    return any(
        (isinstance(value, torch.Tensor) and value.is_cuda)
        or (isinstance(value, torch.device) and value.type == "cuda")
        for value in _leaves(values)
    )


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    return [value]
