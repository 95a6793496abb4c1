"""This machine as a Host."""

from __future__ import annotations

import glob
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msrun_cli.environment.host import MOST_TEXT, Facts, Host, Output

_CAP_DAC_OVERRIDE = 1


class LocalHost(Host):
    """This machine."""

    def __init__(self) -> None:
        self.facts = _local_facts()
        self.environ = os.environ

    def place(self, path: str) -> Path:
        return Path(path)

    def resolve(self, path: str) -> str:
        return os.path.realpath(path)

    def owner(self, path: str) -> tuple[int, int]:
        found = os.stat(path)
        return found.st_uid, found.st_gid

    def glob(self, pattern: str) -> list[str]:
        return sorted(glob.glob(pattern))

    def free_bytes(self, path: str) -> int | None:
        try:
            return shutil.disk_usage(path).free
        except OSError:
            return None

    def port_is_free(self, port: int) -> bool | None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                return False
        return True

    def resolves(self, hostname: str) -> bool | None:
        # In a process of its own: a slow name server must not hold the checks up, and a lookup cannot be cancelled.
        code = "import socket, sys; socket.getaddrinfo(sys.argv[1], None)"
        output = self.run([sys.executable, "-S", "-c", code, hostname], 5)
        return None if output.problem else output.ok

    def run(
        self,
        command: Sequence[str],
        timeout_s: float,
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Output:
        variables = {**os.environ, "LC_ALL": "C", **(environ or {})}
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=variables,
                cwd=cwd,
                start_new_session=True,
            )
        except OSError:
            return Output("", None, problem="missing")
        try:
            raw, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            raw = _kill_group(process)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return Output(_decoded(raw), None, problem="timeout")
        if process.returncode < 0:
            return Output(_decoded(raw), None, signal=-process.returncode)
        return Output(_decoded(raw), process.returncode)


def _decoded(raw: bytes) -> str:
    return raw[-MOST_TEXT:].decode("utf-8", errors="replace")


def _kill_group(process: subprocess.Popen[bytes]) -> bytes:
    """End the command and what it started; returns what it had printed."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    started = time.monotonic()
    while time.monotonic() - started < 2:
        try:
            return process.communicate(timeout=0.5)[0] or b""
        except subprocess.TimeoutExpired:
            continue  # a process that left the group holds the pipe
    return b""


def _local_facts() -> Facts:
    cwd = _working_directory()
    uid = os.getuid() if hasattr(os, "getuid") else 0
    return Facts(
        system=platform.system(),
        machine=platform.machine(),
        libc=_libc(),
        python=platform.python_version(),
        executable=sys.executable,
        search_path=tuple(os.path.normpath(os.path.join(cwd, folder)) for folder in sys.path),
        cwd=cwd,
        home=os.path.expanduser("~"),
        user=os.environ.get("USER") or os.environ.get("LOGNAME") or ("root" if uid == 0 else str(uid)),
        user_id=uid,
        groups=tuple(os.getgroups()) if hasattr(os, "getgroups") else (),
        overrides_permissions=uid == 0 and _capable(),
        hostname=socket.gethostname(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    )


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return os.environ.get("PWD", "/")


def _libc() -> tuple[str, str]:
    try:
        name, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        return name, version
    except (ValueError, OSError, AttributeError):
        return platform.libc_ver()


def _capable() -> bool:
    """Whether root may open any file: a container may have taken that right away."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_DAC_OVERRIDE & 1)
    except (OSError, ValueError, IndexError):
        pass
    return True
