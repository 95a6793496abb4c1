"""Decoded pictures kept between epochs, in memory that forked workers share or in a file of the cache folder."""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.common.files import atomic_path, cache_dir

GIB = 1 << 30
_FREE_PART = 0.5  # of the free memory or disk, when no limit is set: the rest belongs to the training and to others
_FORMAT = 1  # part of the file's name: raise it when what is stored changes

_GROUP_FILES = (  # of control groups, versions 2 and 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)

log = logging.getLogger("msrun")


class PixelCache:
    """uint8 arrays (h, w, 3) by index, written once and read without a copy.

    shapes: (h, w) of each picture; those that fit into the limit, counted from the first one, have a place
    Two processes may write the same picture at once, since they write the same bytes. A picture is only given to
    readers after all of it is there.
    """

    def __init__(self, shapes: np.ndarray, limit_bytes: int, path: Path | None = None) -> None:
        """path: file that holds the pixels; None = memory. Raises DataError when the file cannot be made."""
        sizes = shapes.astype(np.int64).prod(axis=1) * 3
        self.count = int(np.searchsorted(np.cumsum(sizes), limit_bytes, side="right"))
        self.total = len(shapes)
        self.shapes = shapes[: self.count]
        self.starts = np.concatenate([[0], np.cumsum(sizes[: self.count])])
        self.bytes = int(self.starts[-1])
        # In shared memory, so that what one forked worker has read is there for the others.
        self._there = np.frombuffer(mmap.mmap(-1, max(1, self.count)), np.uint8)
        self._file = None if path is None else _PixelFile(path, self.bytes, self._there[: self.count])
        self._pixels = mmap.mmap(-1, max(1, self.bytes)) if self._file is None else self._file.pixels

    def __contains__(self, index: int) -> bool:
        return index < self.count and bool(self._there[index])

    def __getitem__(self, index: int) -> np.ndarray:
        """Read-only view of a picture that is there."""
        height, width = self.shapes[index]
        flat = np.frombuffer(self._pixels, np.uint8, int(height) * int(width) * 3, int(self.starts[index]))
        image = flat.reshape(height, width, 3)
        image.flags.writeable = False
        return image

    def keep(self, index: int, image: np.ndarray) -> np.ndarray:
        """Store the picture if it has a place; the picture as it is to be used from now on."""
        if index >= self.count or image.shape[:2] != tuple(self.shapes[index]):
            return image
        start = int(self.starts[index])
        if self._file is None:
            self._pixels[start : start + image.nbytes] = np.ascontiguousarray(image).data.cast("B")
        elif not self._file.write(start, image):
            return image
        self._there[index] = 1
        return self[index]

    def __deepcopy__(self, memo: dict[int, Any]) -> PixelCache:
        return self


class _PixelFile:
    """The pixels of a disk cache.

    Beside NAME.pixels stands NAME.index, one byte per picture: which of them are known to be on the disk. It is written
    when the cache is no longer used, after the pixels were flushed: a crash or a power failure costs decoding, never a
    wrong pixel.
    """

    def __init__(self, path: Path, size: int, there: np.ndarray) -> None:
        self.path = path
        self.full = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            index = path.with_suffix(".index")
            known = np.frombuffer(index.read_bytes() if index.is_file() else b"", np.uint8)
            if os.fstat(self._handle).st_size < size:  # sparse: takes disk only where it is written
                known = known[:0]
                os.truncate(self._handle, size)
            self.pixels = mmap.mmap(self._handle, size, prot=mmap.PROT_READ) if size else mmap.mmap(-1, 1)
        except OSError as error:
            raise DataError(
                f"dataset.cache=disk: {path} cannot be used: {error.strerror}. Set MSRUN_CACHE_DIR to a folder that "
                "can be written, or dataset.cache=none."
            ) from error
        if len(known) == len(there):
            there[...] = known
        weakref.finalize(self, _finish, self._handle, index, there, int(there.sum()), os.getpid())

    def write(self, start: int, image: np.ndarray) -> bool:
        """By a system call: a full disk is an error here, where writing to a memory map would end the process."""
        data = np.ascontiguousarray(image).data.cast("B")
        try:
            while data and not self.full:
                written = os.pwrite(self._handle, data, start)
                start, data = start + written, data[written:]
        except OSError as error:
            self.full = True
            log.warning("dataset.cache=disk: %s (%s): the rest is decoded each time.", error.strerror, self.path)
        return not self.full


def _finish(handle: int, index: Path, there: np.ndarray, saved: int, owner: int) -> None:
    """Write the index of a disk cache, when the last user is gone or the program ends."""
    try:
        known = there.copy()  # what comes later may not be flushed
        if os.getpid() == owner and int(known.sum()) > saved:
            os.fsync(handle)
            with atomic_path(index) as temporary:
                temporary.write_bytes(known.tobytes())
    except OSError as error:
        log.warning("dataset.cache=disk: %s (%s): it will be decoded again.", error.strerror, index)
    finally:
        os.close(handle)


def open_cache(
    kind: str,
    name: str,
    shapes: np.ndarray,
    limit_gib: float | None,
    files: Callable[[], Iterable[str]],
    setting: Sequence[Any],
) -> PixelCache | None:
    """The cache of a split, and a line in the log with its size; None for kind "none".

    kind: "none", "ram" or "disk"
    name: the split's, for the log
    shapes: int (n, 2), (h, w) of each picture as it is kept
    limit_gib: None = half of what is free
    files, setting: a disk cache belongs to these files, in their state, decoded with this setting
    """
    if kind == "none":
        return None
    folder = cache_dir() / "pixels"
    free = free_memory() if kind == "ram" else _free_disk(folder)
    limit = int(free * _FREE_PART) if limit_gib is None else int(limit_gib * GIB)
    path = None if kind == "ram" else folder / f"{_key(files(), setting)}.pixels"
    cache = PixelCache(shapes, limit, path)
    log.info(
        "dataset.cache=%s: %d of %d %s pictures fit, %.2f GiB when all are read (limit %.2f GiB%s)%s",
        kind,
        cache.count,
        cache.total,
        name,
        cache.bytes / GIB,
        limit / GIB,
        f", half of {free / GIB:.1f} GiB free" if limit_gib is None else "",
        "" if path is None else f"; {path}",
    )
    if cache.bytes > free:
        log.warning(
            "dataset.cache_limit_gib=%g is more than the %.1f GiB of %s that are free here.",
            limit_gib, free / GIB, "memory" if kind == "ram" else "disk",
        )  # fmt: skip
    return cache


def free_memory() -> int:
    """Bytes that this process may still take: of the machine, or of its control group where that allows less."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        pass
    for limit, used in _GROUP_FILES:
        try:
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            pass
    return max(0, free)


def _free_disk(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _key(files: Iterable[str], setting: Sequence[Any]) -> str:
    digest = hashlib.sha256(json.dumps([_FORMAT, cv2.__version__, *setting]).encode())
    for name in files:
        try:
            status = os.stat(name)
            state = f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n"
        except OSError:  # said by whoever reads it
            state = f"{name}\0missing\n"
        digest.update(state.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]
