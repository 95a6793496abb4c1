"""The index of a dataset's labels, kept in the user's cache folder.

An index is found again by its key, a hash of what it was made from: of the content of the annotation file (COCO), or of
the names, sizes and times in nanoseconds of all label and image files (YOLO, VOC: reading many small files is what
costs the time; the time of the last change of a file cannot be set back), with the reader's settings and the version
of this format. So a changed file or setting has another key, and nothing needs to be invalidated. A file is written
under a temporary name and renamed: runs that start together write the same, without locks.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.common.files import atomic_path, cache_dir
from msrun_cli.data.record_table import RecordTable

# Raise it with every change of a reader or of the file: old indexes are then not found any more.
INDEX_VERSION = 1

_KEPT = 64  # indexes; the ones not used for longest are removed beyond that
_DAMAGE = (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError)

log = logging.getLogger("msrun")


@dataclass(frozen=True)
class Index:
    """What a reader makes from label files.

    tables: by the name of the split
    facts: everything else, of JSON types; "classes" is the list of classes that the labels count
    lasting: False = it depends on something that its key does not cover (a file that could not be opened just now)
    """

    tables: Mapping[str, RecordTable]
    facts: Mapping[str, Any]
    lasting: bool = True


def cached_index(kind: str, made_from: Iterable[str], build: Callable[[], Index]) -> Index:
    """The index from the cache, or from `build` and then into the cache.

    kind: the name of the reader; made_from: hashes and settings that decide the result
    """
    text = json.dumps([INDEX_VERSION, kind, *made_from])
    key = hashlib.sha256(text.encode()).hexdigest()
    path = cache_dir() / "labels" / f"{kind}-{key[:24]}.npz"
    index = _load(path, key)
    if index is None:
        index = build()
        if index.lasting:
            _store(path, key, index)
    return index


def content_hash(path: Path) -> str:
    """SHA-256 of a file. DataError when it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(1 << 22):
                digest.update(piece)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    return digest.hexdigest()


def state_hash(paths: Iterable[str]) -> str:
    """SHA-256 of the names, sizes and times of modification and change of files; of those that are missing, too."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            found = os.stat(path)
            state = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
        except (OSError, ValueError):
            state = "missing"
        digest.update(os.fsencode(path) + f"\0{state}\n".encode())
    return digest.hexdigest()


def _load(path: Path, key: str) -> Index | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        index = _unpacked(arrays, key)
        os.utime(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None  # writing will say what is wrong with the folder
    except (*_DAMAGE, AttributeError) as error:
        log.warning("label cache: %s is damaged (%s: %.80s) and is made anew", path, type(error).__name__, error)
        return None
    return index


def _unpacked(arrays: dict[str, np.ndarray], key: str) -> Index:
    head = json.loads(arrays.pop("head").tobytes())
    if head["key"] != key:
        raise ValueError("made from something else")
    tables = {}
    for name in head["tables"]:
        columns = {column.partition("/")[2]: arrays[column] for column in arrays if column.startswith(f"{name}/")}
        table = RecordTable.from_arrays(columns)
        if table.labels.size and not 0 <= table.labels.min() <= table.labels.max() < len(head["facts"]["classes"]):
            raise ValueError("labels that are no classes")
        tables[name] = table
    return Index(tables, head["facts"])


def _store(path: Path, key: str, index: Index) -> None:
    head = json.dumps({"key": key, "tables": list(index.tables), "facts": dict(index.facts)})
    arrays = {"head": np.frombuffer(head.encode(), np.uint8)}
    for name, table in index.tables.items():
        arrays |= {f"{name}/{column}": array for column, array in table.arrays().items()}
    try:
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)
        _forget_old(path.parent)
    except OSError as error:
        log.warning(
            "label cache: %s cannot be written (%s); the labels are read anew each time. Set MSRUN_CACHE_DIR to a "
            "folder that can be written.",
            path.parent,
            error.strerror,
        )


def _forget_old(folder: Path) -> None:
    found = []
    for path in folder.glob("*.npz"):
        try:
            found.append((path.stat().st_mtime, path))
        except OSError:
            continue  # another process was faster
    for _, path in sorted(found, reverse=True)[_KEPT:]:
        path.unlink(missing_ok=True)
