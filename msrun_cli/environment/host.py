"""The machine that is examined. All files, variables and commands go through a Host: a folder can stand for one.

environment/local.py is this machine, environment/tree.py one in a folder.
"""

from __future__ import annotations

import os
import signal
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_TEXT = 2_000_000  # characters of a file or an output that are kept


@dataclass(frozen=True)
class Output:
    """What a command printed (both streams) and how it ended.

    code: None when it did not end by itself; signal: number of the signal that killed it
    problem: "missing" (no such command), "timeout", or "" when it ran to its end
    """

    text: str
    code: int | None = 0
    signal: int | None = None
    problem: str = ""

    @property
    def ok(self) -> bool:
        return self.code == 0

    def tail(self, lines: int) -> list[str]:
        return [line for line in self.text.splitlines() if line.strip()][-lines:]

    def ending(self) -> str:
        """How it ended, in words."""
        if self.problem == "missing":
            return "no such command"
        if self.problem == "timeout":
            return "did not end in time and was stopped"
        if self.signal is not None:
            return f"killed by signal {self.signal} ({signal_name(self.signal)})"
        return f"exit code {self.code}"


@dataclass(frozen=True)
class Facts:
    """What does not stand in files.

    system, machine: as `uname` names them; libc: (name, version); executable: the Python that runs this program
    search_path: folders Python looks for packages in; user_id, groups: numbers of the user; cores: usable ones
    overrides_permissions: root with CAP_DAC_OVERRIDE, who may open any file
    """

    system: str
    machine: str
    libc: tuple[str, str]
    python: str
    executable: str
    search_path: tuple[str, ...]
    cwd: str
    home: str
    user: str
    user_id: int
    groups: tuple[int, ...]
    overrides_permissions: bool
    hostname: str
    cores: int | None


class Host(ABC):
    """facts: see Facts; environ: environment variables."""

    facts: Facts
    environ: Mapping[str, str]

    @abstractmethod
    def place(self, path: str) -> Path:
        """Where the file of that name is to be read."""

    @abstractmethod
    def resolve(self, path: str) -> str:
        """The path without symbolic links, as the examined machine names it."""

    @abstractmethod
    def run(
        self,
        command: Sequence[str],
        timeout_s: float,
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Output:
        """Run a command to its end. environ: variables to add. Never raises for a command that fails."""

    @abstractmethod
    def owner(self, path: str) -> tuple[int, int]:
        """Numbers of the user and the group that own the file."""

    @abstractmethod
    def free_bytes(self, path: str) -> int | None: ...

    @abstractmethod
    def port_is_free(self, port: int) -> bool | None:
        """None = not known."""

    @abstractmethod
    def resolves(self, hostname: str) -> bool | None:
        """Whether the name has an address; None = not known."""

    @abstractmethod
    def glob(self, pattern: str) -> list[str]:
        """Matching paths as the examined machine names them, sorted."""

    def read(self, path: str) -> str | None:
        """Text of a file; None where it is none or cannot be read."""
        try:
            with open(self.place(path), encoding="utf-8", errors="replace") as file:
                return file.read(MOST_TEXT)
        except (OSError, ValueError):
            return None

    def is_file(self, path: str) -> bool:
        return _answers(self.place(path).is_file)

    def is_dir(self, path: str) -> bool:
        return _answers(self.place(path).is_dir)

    def exists(self, path: str) -> bool:
        return _answers(self.place(path).exists)

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty where there is none."""
        try:
            return sorted(os.listdir(self.place(folder)))
        except (OSError, ValueError):
            return []

    def may_open(self, path: str) -> bool:
        """Whether the user may read and write the file, by its mode bits: `os.access` says yes to root for anything."""
        if self.facts.overrides_permissions:
            return True
        try:
            mode = stat.S_IMODE(self.place(path).stat().st_mode)
        except OSError:
            return False
        user, group = self.owner(path)
        if user == self.facts.user_id:
            bits = mode >> 6
        elif group in self.facts.groups:
            bits = mode >> 3
        else:
            bits = mode
        return bits & 6 == 6

    def which(self, name: str) -> list[str]:
        """All programs of that name on PATH, in its order."""
        folders = self.environ.get("PATH", "").split(os.pathsep)
        found = [os.path.join(folder, name) for folder in folders if folder]
        return list(dict.fromkeys(path for path in found if self.is_file(path)))


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _answers(question: object) -> bool:
    try:
        return bool(question())  # type: ignore[operator]
    except (OSError, ValueError):  # no permission to look, a NUL in the name
        return False
