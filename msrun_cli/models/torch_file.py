"""PyTorch weight files as numpy arrays, without PyTorch and without executing what the file holds.

Both formats: the zip archive of PyTorch 1.6 and later (`<name>/data.pkl` and `<name>/data/<key>`), and the older one of
five pickles in a row (magic number, protocol, system, object, list of storage keys), followed by the storages.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from msrun_cli.common.errors import CheckpointError
from msrun_cli.models.inert_pickle import BrokenPickle, Inert, RefusedPickle, read_pickle
from msrun_cli.models.torch_objects import BFLOAT16, Storage, TorchTensor, torch_rules

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
# Entries of a checkpoint that may hold the weights, the best first ("ema" is what YOLOv5 evaluates).
WEIGHT_ENTRIES = ("ema", "model", "state_dict", "model_state_dict", "module")
MAX_ENTRIES = 200_000  # parameters, buffers and modules; a few thousand are usual
MAX_DEPTH = 100  # of modules in modules
MAX_NAME = 1000  # characters of a parameter's name
MAX_GROWTH = 16  # bytes of arrays per byte of file; float16 becomes float32 and tied weights are stored once
_DAMAGE = (
    ValueError,
    LookupError,
    OverflowError,
    RuntimeError,
    EOFError,
    OSError,
    MemoryError,
    struct.error,
    zlib.error,
)

_Load = Callable[[Storage], bytes]


def read_torch_file(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Parameters and buffers by their PyTorch names ("model.0.conv.weight"), without a leading "module.".

    float16 and bfloat16 come as float32, all else in its own type. The file may hold a state dict, a checkpoint
    with one, or a whole network of torch.nn and ultralytics classes.

    Raises:
        CheckpointError: not such a file, damaged, without weights, or naming anything that weights do not need.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        thing, load = _open_zip(data) if zipfile.is_zipfile(io.BytesIO(data)) else _open_legacy(data)
        tensors = _without_module_prefix(_tensors(thing))
        arrays = dict(_arrays(tensors, load, MAX_GROWTH * len(data)))
    except RefusedPickle as error:
        raise CheckpointError(
            f"{path} was refused: {error}. Nothing in it was executed. If you trust its source, load it with PyTorch "
            "there and save plain weights: torch.save(model.state_dict(), 'weights.pt')."
        ) from error
    except (BrokenPickle, zipfile.BadZipFile, *_DAMAGE) as error:
        raise CheckpointError(
            f"{path} ({len(data)} bytes) is not a complete PyTorch file: {error}. Copy or download it again."
        ) from error
    if not arrays:
        raise CheckpointError(
            f"{path} holds {_description(thing)}, in which no weights were found. "
            "Save them with PyTorch: torch.save(model.state_dict(), 'weights.pt')."
        )
    return arrays


# ---- the two formats: bytes -> (object, function that gives the bytes of a storage)


def _open_zip(data: bytes) -> tuple[Any, _Load]:
    archive = zipfile.ZipFile(io.BytesIO(data))
    members = {member.filename: member for member in archive.infolist()}
    pickles = [name for name in members if name.count("/") <= 1 and name.split("/")[-1] == "data.pkl"]
    if len(pickles) != 1:
        raise BrokenPickle("it is a zip archive without a data.pkl as PyTorch writes it")
    prefix = pickles[0].removesuffix("data.pkl")
    if f"{prefix}constants.pkl" in members:
        raise RefusedPickle("it is a TorchScript program")
    bytes_left = [len(data)]

    def read(name: str) -> bytes:
        member = members.get(name)
        if member is None:
            raise BrokenPickle(f"{name[:80]} is missing in it")
        # Neither compressed members nor overlapping ones may make more of the file than there is.
        bytes_left[0] -= member.file_size
        if member.compress_type != zipfile.ZIP_STORED or bytes_left[0] < 0:
            raise RefusedPickle(f"{name[:80]} is compressed or overlaps others, which PyTorch's files never do")
        return archive.read(member)

    big_endian = f"{prefix}byteorder" in members and read(f"{prefix}byteorder") == b"big"

    def load(storage: Storage) -> bytes:
        block = read(f"{prefix}data/{storage.key}")
        return np.frombuffer(block, storage.dtype).byteswap().tobytes() if big_endian else block

    return read_pickle(io.BytesIO(read(pickles[0])), torch_rules({})), load


def _open_legacy(data: bytes) -> tuple[Any, _Load]:
    if data[:2] == b"PK":
        raise BrokenPickle("the end of its zip archive is missing")
    if data[:1] != b"\x80":
        raise BrokenPickle(f"it starts with {data[:16]!r}" if data else "it is empty")
    stream = io.BytesIO(data)
    storages: dict[str, Storage] = {}
    rules = torch_rules(storages)
    if read_pickle(stream, rules) != LEGACY_MAGIC:
        raise BrokenPickle("it is a pickle, but not one that PyTorch wrote")
    _protocol, _system, thing, keys = (read_pickle(stream, rules) for _ in range(4))
    if not isinstance(keys, list):
        raise BrokenPickle("its list of storages is damaged")
    blocks: dict[str, bytes] = {}
    for key in keys:
        storage = storages.get(key) if isinstance(key, str) else None
        head = stream.read(8)
        if storage is None or len(head) < 8 or struct.unpack("<q", head)[0] != storage.total:
            raise BrokenPickle(f"its storages are cut off or damaged after {len(blocks)} of {len(keys)}")
        blocks[key] = stream.read(min(storage.nbytes, len(data)))
    return thing, lambda storage: blocks.get(storage.key, b"")


# ---- from the object to tensors by name


def _tensors(thing: Any, depth: int = 0) -> dict[str, TorchTensor]:
    if isinstance(thing, Inert):
        return dict(_module_tensors(thing))
    if not isinstance(thing, dict) or depth > 3:
        return {}
    for entry in WEIGHT_ENTRIES:
        found = _tensors(thing.get(entry), depth + 1)
        if found:
            return found
    return {_checked_name(name): value for name, value in thing.items() if isinstance(value, TorchTensor)}


def _module_tensors(network: Inert) -> Iterator[tuple[str, TorchTensor]]:
    """Parameters, persistent buffers, then inner modules: the names and the order of PyTorch's state_dict()."""
    waiting = [("", network, 0)]
    visited = 0
    while waiting:
        prefix, module, depth = waiting.pop()
        parameters, buffers = _entries(module, "_parameters"), _entries(module, "_buffers")
        modules, hidden = _entries(module, "_modules"), module.state.get("_non_persistent_buffers_set")
        hidden = hidden if isinstance(hidden, list) else []
        hidden_names = {name for name in hidden if isinstance(name, str)}
        # A module may stand in many places, so the pickle's own size is no limit.
        visited += 1 + len(parameters) + len(buffers) + len(modules) + len(hidden)
        if visited > MAX_ENTRIES or depth > MAX_DEPTH:
            raise RefusedPickle("its modules are nested without end")
        for name, value in [*parameters, *(entry for entry in buffers if entry[0] not in hidden_names)]:
            if isinstance(value, TorchTensor):
                yield _checked_name(prefix, name), value
        inner = [
            (_checked_name(prefix, name, "."), value, depth + 1) for name, value in modules if isinstance(value, Inert)
        ]
        waiting.extend(reversed(inner))


def _entries(module: Inert, group: str) -> list[tuple[Any, Any]]:
    entries = module.state.get(group)
    return list(entries.items()) if isinstance(entries, dict) else []


def _checked_name(*parts: Any) -> str:
    if not all(isinstance(part, str) for part in parts) or sum(map(len, parts)) > MAX_NAME:
        raise RefusedPickle("the name of a parameter is not a text of reasonable length")
    return "".join(parts)


def _without_module_prefix(tensors: Mapping[str, TorchTensor]) -> dict[str, TorchTensor]:
    """Drop the "module." that DataParallel puts before every name."""
    if all(name.startswith("module.") for name in tensors):
        return {name.removeprefix("module."): tensor for name, tensor in tensors.items()}
    return dict(tensors)


def _description(thing: Any) -> str:
    if isinstance(thing, dict):
        return f"a dictionary of {', '.join(str(key)[:40] for key in list(thing)[:10]) or 'nothing'}"
    return f"an object of {thing.class_name[:200]}" if isinstance(thing, Inert) else f"a {type(thing).__name__}"


# ---- from tensors to arrays


def _arrays(tensors: Mapping[str, TorchTensor], load: _Load, max_bytes: int) -> Iterator[tuple[str, np.ndarray]]:
    blocks: dict[str, bytes] = {}
    total = 0
    for name, tensor in tensors.items():
        storage = tensor.storage
        if storage.key not in blocks:
            blocks[storage.key] = load(storage)
        block = blocks[storage.key]
        if len(block) != storage.nbytes:
            raise BrokenPickle(
                f"{name} has {len(block)} bytes where {storage.total} numbers of {storage.kind} should be"
            )
        array = _array(tensor, block)
        total += array.nbytes
        if total > max_bytes:
            raise RefusedPickle(f"its tensors would fill more than {MAX_GROWTH} times the size of the file")
        yield name, array


def _array(tensor: TorchTensor, block: bytes) -> np.ndarray:
    """A contiguous, writable copy."""
    dtype = tensor.storage.dtype
    if not math.prod(tensor.shape):
        view = np.empty(tensor.shape, dtype)
    else:
        # The stride of a dimension of size 1 means nothing and may be any number.
        steps = zip(tensor.shape, tensor.strides, strict=True)
        strides = tuple(stride * dtype.itemsize if size > 1 else 0 for size, stride in steps)
        # numpy checks once more that the view lies inside the block.
        view = np.ndarray(tensor.shape, dtype, block, tensor.offset * dtype.itemsize, strides)
    if tensor.storage.kind == BFLOAT16:
        return bfloat16_to_float32(view)
    return view.astype(np.float32 if dtype == np.float16 else dtype, order="C")


def bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    """`bits`: uint16 array of any shape that holds bfloat16 numbers."""
    return np.asarray(np.left_shift(bits, 16, dtype=np.uint32, order="C")).view(np.float32)
