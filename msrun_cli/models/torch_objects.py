"""What the names in a PyTorch pickle stand for: descriptions of storages and tensors, checked against each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from msrun_cli.models.inert_pickle import BrokenPickle, Inert, Named, RefusedPickle, Rules

BFLOAT16 = "bfloat16"  # numpy has no such type: its bits are the upper half of a float32


@dataclass(frozen=True)
class Storage:
    """A flat block of numbers in the file; `start` and `size` (in numbers) cut a view out of it."""

    key: str
    kind: str  # numpy type name, or BFLOAT16
    total: int  # numbers in the whole block
    start: int
    size: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint16 if self.kind == BFLOAT16 else self.kind)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole block."""
        return self.total * self.dtype.itemsize


@dataclass(frozen=True)
class TorchTensor:
    """A view of a storage that was checked to lie inside it; `offset` and `strides` count numbers, not bytes."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _Kind:
    """A storage class such as torch.HalfStorage, by the type of its numbers."""

    name: str


_KINDS = {
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "BFloat16": BFLOAT16,
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}
# Classes whose objects may be whole networks or parts of them: only their attributes are kept.
_NETWORK_PREFIXES = ("torch.nn.modules.", "models.", "yolov5.models.", "ultralytics.")
# Harmless things that training loops put beside the weights (paths, devices, a numpy score): they are thrown away.
_THROWN_AWAY = (
    *("torch.device", "torch.Size", "torch.float16", "torch.bfloat16", "torch.float32", "torch.float64", "torch.int64"),
    *("pathlib.PosixPath", "pathlib.WindowsPath", "pathlib._local.PosixPath", "pathlib._local.WindowsPath"),
    *("numpy.core.multiarray.scalar", "numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"),
    *("numpy._core.multiarray.scalar", "numpy._core.multiarray._reconstruct", "_codecs.encode"),
    *("numpy.core.numeric._frombuffer", "numpy._core.numeric._frombuffer"),
)


def torch_rules(storages: dict[str, Storage]) -> Rules:
    """Rules for `read_pickle`; every storage that the pickle mentions is entered in `storages` by its key."""

    def load_persistent(identifier: Any) -> Storage | Named:
        if _is_class_with_source(identifier):
            return identifier[1]
        storage = _storage_of(identifier)
        storages[storage.key] = storage
        return storage

    return Rules(
        calls={
            "collections.OrderedDict": _ordered_dict,
            **dict.fromkeys(
                ("__builtin__.set", "builtins.set", "__builtin__.frozenset", "builtins.frozenset"), _members
            ),
            "torch._utils._rebuild_tensor": _rebuild_tensor,
            "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
            "torch._utils._rebuild_parameter": _rebuild_parameter,
            "torch._utils._rebuild_parameter_with_state": _rebuild_parameter,
            **{name: _throw_away(name) for name in _THROWN_AWAY},
        },
        values={
            f"{place}.{name}Storage": _Kind(kind) for place in ("torch", "torch.cuda") for name, kind in _KINDS.items()
        },
        is_class=lambda name: name.startswith(_NETWORK_PREFIXES),
        load_persistent=load_persistent,
    )


def _is_class_with_source(identifier: Any) -> bool:
    """("module", class, file, source): the older format keeps the source of each network class, for a warning only."""
    return (
        isinstance(identifier, tuple)
        and len(identifier) == 4
        and identifier[0] == "module"
        and isinstance(identifier[1], Named)
        and identifier[1].call is None
    )


def _storage_of(identifier: Any) -> Storage:
    """Of ("storage", class, key, device, numbers, view); the older format alone has a view: (key, start, size)."""
    if not isinstance(identifier, tuple) or len(identifier) not in (5, 6) or identifier[0] != "storage":
        raise RefusedPickle("it has a persistent id that is no storage")
    kind, key, _device, total, *rest = identifier[1:]
    if not isinstance(kind, _Kind) or not isinstance(key, str) or not _is_count(total):
        raise RefusedPickle("it describes a storage in an unknown way")
    view = rest[0] if rest else None
    if view is None:
        return Storage(key, kind.name, total, 0, total)
    if not isinstance(view, tuple) or len(view) != 3 or not _is_count(view[1]) or not _is_count(view[2]):
        raise RefusedPickle("it describes a view of a storage in an unknown way")
    if view[1] + view[2] > total:
        raise BrokenPickle(f"a view of storage {key[:40]} reaches beyond it")
    return Storage(key, kind.name, total, view[1], view[2])


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> TorchTensor:
    if not isinstance(storage, Storage) or not _is_count(offset) or not _are_counts(shape) or not _are_counts(strides):
        raise BrokenPickle("it describes a tensor in an unknown way")
    if len(shape) != len(strides) or len(shape) > 16:
        raise BrokenPickle(f"a tensor has {len(shape)} sizes and {len(strides)} strides")
    count = math.prod(shape)
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    # An expanded tensor (stride 0) could be of any size; weights are saved in full.
    if count and (last >= storage.size or count > storage.size):
        raise BrokenPickle(f"a tensor of shape {shape} reaches beyond its {storage.size} numbers")
    return TorchTensor(storage, storage.start + offset, shape, strides)


def _rebuild_parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _ordered_dict(pairs: Any = ()) -> dict[str, Any]:
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise BrokenPickle("a dictionary is damaged")
    return {pair[0]: pair[1] for pair in pairs}


def _members(values: Any = ()) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else []


def _throw_away(name: str) -> Callable[..., Inert]:
    return lambda *_: Inert(name)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62


def _are_counts(values: Any) -> bool:
    return isinstance(values, tuple) and all(_is_count(value) for value in values)
