"""Compiled graphs, kept from run to run: compiling is the longest part of a start.

MindSpore can keep what its compiler made, but it numbers the graphs of a process and takes whatever has that number,
without a look at what it is. So it gets a folder with the one graph that is meant, under each number that it may ask
for, and only for as long as that graph is compiled. What is meant is told by a key made of everything that goes into a
graph: configuration, data, ranks, versions and source code.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import re
import shutil
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mindspore as ms

import msrun_cli
from msrun_cli.common.files import atomic_path, cache_dir

GRAPHS_KEPT = 32  # of all configurations together; a graph takes some megabytes
NUMBERS = 64  # graphs that a process may have compiled before
_NUMBER = re.compile(r"_(\d+)(?=\.)")  # compile_cache_3.mindir

log = logging.getLogger("msrun")


class GraphCache:
    """Graphs of one process.

    parts: what the graphs depend on besides versions and code, as JSON can hold it; None = nothing is kept
    private: folder of this process, for MindSpore
    found: whether the last graph that was asked for was there
    """

    def __init__(self, parts: Mapping[str, Any] | None, private: Path) -> None:
        self.parts, self.private = parts, private
        self.kept = cache_dir() / "graphs"
        self._entry: Path | None = None
        self.found = False

    def begin(self, name: str) -> bool:
        """Call it before the first call of a cell, and `end` behind. Returns whether its graph was found.

        name: of the graph, one of several that the same parts stand for
        """
        self.found = False
        if self.parts is None:
            return False
        try:
            entry = self.kept / f"{_key({**self.parts, 'graph': name})}.zip"
            self.found = _unpack(entry, self.private)
        except OSError as error:  # a full disk, a file system without hard links: no reason not to train
            log.info("compiled graphs cannot be kept in %s: %s", self.private, error.strerror)
            shutil.rmtree(self.private, ignore_errors=True)
            return False
        self._entry = entry
        ms.set_context(enable_compile_cache=True, compile_cache_path=str(self.private))
        return self.found

    def end(self) -> None:
        """Keep what was compiled since `begin`."""
        if self._entry is None:
            return
        entry, self._entry = self._entry, None
        ms.set_context(enable_compile_cache=False)
        try:
            if self.found:
                os.utime(entry)
            else:
                _pack(self.private, entry)
            _keep_newest(self.kept)
        except OSError as error:
            log.info("the compiled graph is not kept in %s: %s", self.kept, error.strerror)
        shutil.rmtree(self.private, ignore_errors=True)


def _key(parts: Mapping[str, Any]) -> str:
    everything = {
        **parts,
        "mindspore": ms.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "program": os.path.realpath(sys.argv[0]),  # MindSpore compares that file, too
        "code": _code(),
    }
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:32]


def _code() -> str:
    """A hash of our source files and of the user's: all that is loaded and was not installed."""
    digest = hashlib.sha256()
    for path in sorted({*Path(msrun_cli.__file__).parent.rglob("*.py"), *_loaded_files()}):
        digest.update(str(path).encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def _loaded_files() -> Iterator[Path]:
    installed = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.endswith(".py") and not file.startswith(installed) and Path(file).is_file():
            yield Path(file)


def _unpack(entry: Path, private: Path) -> bool:
    """Whether `private` now holds the graph of `entry`. A damaged one is removed."""
    shutil.rmtree(private, ignore_errors=True)
    private.mkdir(parents=True)
    try:
        with zipfile.ZipFile(entry) as archive:
            archive.extractall(private)  # which compares the checksums
    except FileNotFoundError:
        return False
    except (OSError, zipfile.BadZipFile) as error:
        log.info("the kept graph %s cannot be read (%s); it is compiled anew", entry, error)
        shutil.rmtree(private, ignore_errors=True)
        private.mkdir(parents=True)
        _remove(entry)
        return False
    for path in [path for path in private.rglob("*") if _NUMBER.search(path.name)]:
        for number in range(NUMBERS):
            name = _NUMBER.sub(f"_{number}", path.name)
            if name != path.name:
                os.link(path, path.with_name(name))
    return True


def _pack(private: Path, entry: Path) -> None:
    """Keep the one graph in `private`; anything else is nothing to keep."""
    files = [path for path in sorted(private.rglob("*")) if path.is_file()]
    numbers = {found[1] for path in files if (found := _NUMBER.search(path.name))}
    if len(numbers) != 1:
        return
    with atomic_path(entry) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for path in files:
            archive.write(path, path.relative_to(private))


def _keep_newest(folder: Path) -> None:
    entries = sorted(folder.glob("*.zip"), key=_last_use)
    for entry in entries[:-GRAPHS_KEPT]:
        _remove(entry)


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process removed it
        return 0.0


def _remove(entry: Path) -> None:
    try:
        entry.unlink(missing_ok=True)
    except OSError as error:
        log.debug("%s cannot be removed: %s", entry, error)
