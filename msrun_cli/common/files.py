"""Files that matter are written to a temporary name, fsynced and renamed, so a reader never sees half a file."""

from __future__ import annotations

import glob
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_UNFINISHED = ".unfinished-"


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is fsynced and renamed to `path`, on error removed.

    The temporary name keeps the suffix of `path`, since some writers choose their format by it.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f"{_UNFINISHED}{target.stem}-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _fsync(temporary)
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, target)
        _fsync(target.parent)
    finally:
        # some writers have a temporary file of their own beside it, and leave it when the disk is full
        for leftover in target.parent.glob(f"{glob.escape(temporary.stem)}.*"):
            leftover.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what writers left in `folder` when they were killed. Nobody may be writing there."""
    for leftover in folder.glob(f"{_UNFINISHED}*"):
        leftover.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def cache_dir() -> Path:
    """Folder for generated data: MSRUN_CACHE_DIR, else XDG_CACHE_HOME/msrun-cli, else ~/.cache/msrun-cli."""
    chosen = os.environ.get("MSRUN_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "msrun-cli"


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
