"""Builds PyTorch-like files by hand, opcode by opcode, so that the tests need no PyTorch and can be malicious."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    """Also for what no honest file has: up to 255 bytes of integer."""
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def named(name: str) -> bytes:
    """The GLOBAL opcode; `name` is "module.name"."""
    module, _, attribute = name.rpartition(".")
    return f"c{module}\n{attribute}\n".encode()


def tuple_of(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + tuple_of(*arguments) + b"R"


def dictionary(entries: dict[str, bytes], empty: bytes = b"}") -> bytes:
    return empty + b"(" + b"".join(text(key) + value for key, value in entries.items()) + b"u"


def instance(class_name: str, attributes: dict[str, bytes]) -> bytes:
    """An object as pickle protocol 2 writes it: NEWOBJ, then BUILD with its attributes."""
    return named(class_name) + b")\x81" + dictionary(attributes) + b"b"


def module(class_name: str, parameters: dict | None = None, modules: dict | None = None, **more: bytes) -> bytes:
    groups = {"_parameters": dictionary(parameters or {}), "_modules": dictionary(modules or {})}
    return instance(class_name, groups | more)


def storage(key: str, count: int, kind: str = "Float", *view: bytes) -> bytes:
    return tuple_of(text("storage"), named(f"torch.{kind}Storage"), text(key), text("cpu"), number(count), *view) + b"Q"


def tensor(key: str, count: int, shape=None, strides=None, offset: int = 0, kind: str = "Float", view=()) -> bytes:
    shape = (count,) if shape is None else shape
    strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape))) if strides is None else strides
    sizes = tuple_of(*map(number, shape)), tuple_of(*map(number, strides))
    hooks = call(named("collections.OrderedDict"))
    block = storage(key, count, kind, *view)
    return call(named("torch._utils._rebuild_tensor_v2"), block, number(offset), *sizes, b"\x89", hooks)


def write_zip(path: Path, body: bytes, blocks: dict[str, bytes] | None = None, compression=zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + body + b".")
        archive.writestr("archive/version", b"3\n")
        for key, block in (blocks or {}).items():
            archive.writestr(f"archive/data/{key}", block)
    return path


def write_legacy(path: Path, body: bytes, blocks: dict[str, np.ndarray]) -> Path:
    stream = io.BytesIO()
    for value in (MAGIC, 1001, {"protocol_version": 1001, "little_endian": True}):
        pickle.dump(value, stream, protocol=2)
    stream.write(b"\x80\x02" + body + b".")
    pickle.dump(list(blocks), stream, protocol=2)
    for block in blocks.values():
        stream.write(struct.pack("<q", block.size) + block.tobytes())
    path.write_bytes(stream.getvalue())
    return path
