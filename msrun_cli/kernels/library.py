"""The shared library with our kernels for a CPU, made from source/ by the machine's own compiler and kept.

It is an extra: where there is no compiler, MindSpore's operators compute the same, more slowly. A library fits the
processor that it was made on, so the processor's abilities are part of its name.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
from pathlib import Path

from msrun_cli.common.errors import DeviceError
from msrun_cli.common.files import atomic_path, cache_dir

SOURCE = Path(__file__).parent / "source"
COMPILERS = ("g++", "c++", "clang++")  # the environment variable CXX goes first
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden")
COMPILE_TIMEOUT_S = 120
LIBRARIES_KEPT = 8
ALLOWED_FOLDER = "MS_CUSTOM_AOT_WHITE_LIST"  # MindSpore's: where it takes libraries from

log = logging.getLogger("msrun")


class NoLibrary(Exception):
    """The message says why."""


def kernel_library(wish: str) -> Path | None:
    """The library, made now if it is not there; None = MindSpore's operators do the work.

    wish: "auto", "on" or "off"

    Raises:
        DeviceError: the wish is "on" and the library cannot be made.
    """
    if wish == "off":
        return None
    try:
        path = cache_dir().absolute() / "kernels" / f"{_key()}.so"
        _check_place(path)
        if not path.exists():
            _make(path)
        _load(path)
    except (NoLibrary, OSError) as reason:  # such as a cache folder that may not be entered
        if wish == "on":
            raise DeviceError(
                f"device.kernels=on: {reason}. Install a C++17 compiler such as g++ (or name one in CXX), or set "
                "device.kernels=auto, which then does without."
            ) from reason
        log.info("training steps take longer than they could: %s (device.kernels=auto)", reason)
        return None
    log.info("kernels for this processor: %s", path)
    return path


def _check_place(path: Path) -> None:
    """Whether MindSpore would take a library from there."""
    allowed = os.environ.get(ALLOWED_FOLDER)
    if allowed is not None and not path.resolve().is_relative_to(Path(allowed).resolve()):
        raise NoLibrary(f"{ALLOWED_FOLDER} forbids {path}")
    if ":" in str(path):
        raise NoLibrary(f"MindSpore takes no library whose path has a colon, such as {path} (MSRUN_CACHE_DIR moves it)")


def _make(path: Path) -> None:
    compiler = _compiler()
    try:
        with atomic_path(path) as temporary:
            _compile(compiler, sorted(SOURCE.glob("*.cc")), temporary)
        _keep_newest(path)
    except OSError as error:  # no permission, a full disk
        raise NoLibrary(f"{path} cannot be written ({error.strerror})") from error


def _load(path: Path) -> None:
    for item in (path, path.parent):
        facts = item.stat()
        if facts.st_uid not in (os.getuid(), 0) or facts.st_mode & stat.S_IWOTH:
            raise NoLibrary(f"{item} is another user's or can be written by all (MSRUN_CACHE_DIR moves it)")
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        raise NoLibrary(f"{path} cannot be loaded ({error}); remove it to have it made again") from error


def _compiler() -> str:
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise NoLibrary(f"CXX={wanted} is not there" if wanted else "there is no C++ compiler here")


def _compile(compiler: str, sources: list[Path], output: Path) -> None:
    command = [compiler, *FLAGS, *map(str, sources), "-o", str(output)]
    english = {**os.environ, "LC_ALL": "C"}
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, env=english,
            timeout=COMPILE_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise NoLibrary(f"{compiler} had not finished after {COMPILE_TIMEOUT_S} s") from error
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if "error" in line] or result.stderr.splitlines() or ["?"]
        raise NoLibrary(f"{compiler} failed: {lines[0].strip()}")


def _key() -> str:
    digest = hashlib.sha256(repr((FLAGS, platform.machine(), _abilities())).encode())
    for source in sorted(SOURCE.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _abilities() -> list[str]:
    """Model and instruction sets of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return [platform.processor()]
    names = ("flags", "features", "model name", "cpu part")
    return sorted({line for line in lines if line.lower().split("\t")[0].split(":")[0].strip() in names})


def _keep_newest(path: Path) -> None:
    """Remove libraries of other versions but the last few."""
    others = sorted(path.parent.glob("[!.]*.so"), key=lambda item: item.stat().st_mtime)
    for other in others[:-LIBRARIES_KEPT]:
        if other != path:
            other.unlink(missing_ok=True)
