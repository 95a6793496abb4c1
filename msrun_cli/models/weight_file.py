"""Weights from any file that holds them, as numpy arrays by name: .npz, PyTorch, safetensors, MindSpore .ckpt."""

from __future__ import annotations

import difflib
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from msrun_cli.common.errors import CheckpointError
from msrun_cli.models.torch_file import bfloat16_to_float32, read_torch_file

SUFFIXES = (".ckpt", ".npz", ".pt", ".pth", ".th", ".safetensors")
MAX_EXPANSION = 200  # bytes in a compressed .npz per byte of file; real weights stay below 2, all-zero ones near 1000
MAX_HEADER = 100_000_000  # bytes, the limit that the safetensors format sets itself
_SAFETENSORS_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}


def read_weights(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Arrays by the names they have in the file; float16 and bfloat16 come as float32.

    What the file is, is told by its content; a MindSpore checkpoint, which has no mark, by the suffix .ckpt.

    Raises:
        CheckpointError: missing, damaged, unsafe or of another kind.
    """
    file = Path(path)
    if not file.is_file():
        raise CheckpointError(_missing(file))
    try:
        with file.open("rb") as stream:
            start = stream.read(16)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    if not start:
        raise CheckpointError(f"{path} is empty (0 bytes). Copy or download it again.")
    if start[:2] == b"PK":
        return read_npz(file) if _is_npz(file) else read_torch_file(file)
    if start[:1] == b"\x80" or file.suffix in (".pt", ".pth", ".th"):
        return read_torch_file(file)
    if file.suffix == ".ckpt":
        return read_mindspore_checkpoint(file)
    if start[8:9] == b"{" or file.suffix == ".safetensors":
        return read_safetensors(file)
    raise CheckpointError(
        f"{path} starts with {start!r} and is no weight file of a known kind ({', '.join(SUFFIXES)})."
    )


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Arrays of a numpy .npz file; pickled objects in it are refused.

    Raises:
        CheckpointError
    """
    try:
        with zipfile.ZipFile(path) as archive:
            expanded = sum(member.file_size for member in archive.infolist())
        if expanded > MAX_EXPANSION * os.path.getsize(path):
            raise CheckpointError(f"{path} was refused: it would expand to {expanded} bytes.")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: _plain(name, arrays[name]) for name in arrays.files}
    except (
        zipfile.BadZipFile,
        zlib.error,
        ValueError,
        OSError,
        EOFError,
        RuntimeError,
        MemoryError,
        KeyError,
    ) as error:
        raise CheckpointError(f"{path} is not a complete .npz file of plain arrays: {error}") from error


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Arrays of a .safetensors file: 8 bytes of header length, a JSON header, then the numbers, little-endian.

    Raises:
        CheckpointError
    """
    data = Path(path).read_bytes()
    try:
        length = int.from_bytes(data[:8], "little")
        if length > min(MAX_HEADER, len(data) - 8):
            raise ValueError(f"a header of {length} bytes in a file of {len(data)}")
        header = json.loads(data[8 : 8 + length])
        body = memoryview(data)[8 + length :]
        return {name: _safetensor(name, entry, body) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError, MemoryError) as error:
        raise CheckpointError(
            f"{path} is not a complete safetensors file: {error}. Copy or download it again."
        ) from error


def read_mindspore_checkpoint(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Arrays of a MindSpore checkpoint; entries that are no tensors (texts) are left out.

    A checksum at its end, where it has one, is checked.

    Raises:
        CheckpointError
    """
    if not Path(path).is_file():
        raise CheckpointError(_missing(Path(path)))
    import mindspore  # takes seconds, and no other kind of file needs it

    try:
        # The absolute path, since MindSpore's checks refuse some relative ones.
        entries = mindspore.load_checkpoint(str(Path(path).resolve()), crc_check=_has_checksum(path))
    except Exception as error:  # MindSpore raises whatever its parser met
        reason = str(error).strip().splitlines()
        raise CheckpointError(
            f"{path} is not a complete MindSpore checkpoint: {reason[0] if reason else type(error).__name__} "
            "Copy it again, or take another one from that folder."
        ) from error
    return {name: _parameter_array(entry) for name, entry in entries.items() if hasattr(entry, "asnumpy")}


def _has_checksum(path: str | os.PathLike[str]) -> bool:
    """MindSpore ends a checkpoint with `crc_num` and 10 bytes of CRC32 when it was saved with crc_check."""
    with open(path, "rb") as stream:
        stream.seek(-min(17, os.path.getsize(path)), os.SEEK_END)
        return stream.read().startswith(b"crc_num")


def _parameter_array(parameter: Any) -> np.ndarray:
    import mindspore

    # asnumpy refuses bfloat16, and float16 is as well widened on the way.
    if parameter.dtype in (mindspore.bfloat16, mindspore.float16):
        parameter = parameter.astype(mindspore.float32)
    return parameter.asnumpy()


def _safetensor(name: str, entry: dict[str, Any], body: memoryview) -> np.ndarray:
    kind, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if kind not in _SAFETENSORS_TYPES:
        raise ValueError(f"{name} has the type {kind}; known are {', '.join(_SAFETENSORS_TYPES)}")
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)) or end > len(body):
        raise ValueError(f"{name} reaches beyond the file")
    # frombuffer and reshape check that the bytes are as many as the shape says
    array = np.frombuffer(body[begin:end], _SAFETENSORS_TYPES[kind]).reshape(shape)
    return bfloat16_to_float32(array) if kind == "BF16" else _float32_from_half(array.copy())


def _plain(name: str, array: Any) -> np.ndarray:
    if not isinstance(array, np.ndarray):  # numpy gives the bytes of a member that is no array
        raise ValueError(f"{name[:80]} in it is no array")
    return _float32_from_half(array)


def _float32_from_half(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _is_npz(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError):
        return file.suffix == ".npz"


def _missing(file: Path) -> str:
    """What is there instead: names like it in its folder, or the nearest folder that exists."""
    if file.is_dir():
        return f"{file} is a folder, not a weight file.{_offer(file, file.name)}"
    if not file.parent.is_dir():
        return (
            f"{file} does not exist, and neither does its folder {file.parent}. Relative paths start at {Path.cwd()}."
        )
    return f"{file} does not exist.{_offer(file.parent, file.name)}"


def _offer(folder: Path, name: str) -> str:
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.suffix in SUFFIXES)
    except OSError:
        names = []
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:5]
    return f" In {folder} there is: {', '.join(near)}." if near else f" There are no weight files in {folder}."
