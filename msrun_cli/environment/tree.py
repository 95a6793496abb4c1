"""A machine in a folder: its files below DIR, what does not stand in files in DIR/host.json.

    {"python": "3.11.9", "machine": "aarch64", "environ": {"ASCEND_HOME_PATH": "..."},
     "commands": {"npu-smi info": {"output": "...", "code": 0, "signal": null, "problem": ""}}}

Every key may be left out (docs/check-env.md lists them). A command is looked up by the name of its program and its
arguments; one that is not recorded is not found. So a tree copied from a machine shows the same findings anywhere.
"""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msrun_cli.common.errors import ConfigError
from msrun_cli.environment.host import Facts, Host, Output

RECORD = "host.json"
_KEYS = {
    "system", "machine", "libc", "python", "executable", "search_path", "cwd", "home", "user", "user_id", "groups",
    "overrides_permissions", "hostname", "cores", "environ", "commands", "owners", "free_bytes", "busy_ports",
    "known_hosts",
}  # fmt: skip
_MOST_LINKS = 40


class TreeHost(Host):
    """root: the folder.

    Raises:
        ConfigError: the folder or its host.json cannot be used.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()
        if not self.root.is_dir():
            raise ConfigError(f"--root {root}: there is no such folder. Give one with the files of a machine below it.")
        self.record = _read_record(self.root / RECORD)
        self.environ: Mapping[str, str] = self.record.get("environ", {})
        self.facts = self._facts()

    def place(self, path: str) -> Path:
        return self.root / self.resolve(path).lstrip("/")

    def resolve(self, path: str) -> str:
        """Links, also absolute ones, lead to places inside the tree."""
        parts = self._absolute(path).split("/")[1:]
        done: list[str] = []
        links = 0
        while parts:
            part = parts.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                done = done[:-1]
                continue
            here = self.root.joinpath(*done, part)
            if here.is_symlink() and links < _MOST_LINKS:
                links += 1
                target = os.readlink(here)
                if target.startswith("/"):
                    done = []
                parts = [*target.split("/"), *parts]
            else:
                done.append(part)
        return "/" + "/".join(done)

    def _absolute(self, path: str) -> str:
        if path.startswith("/"):
            return path
        return os.path.join(self.facts.cwd if hasattr(self, "facts") else "/", path)

    def owner(self, path: str) -> tuple[int, int]:
        user, group = self.record.get("owners", {}).get(path, (0, 0))
        return int(user), int(group)

    def glob(self, pattern: str) -> list[str]:
        found = ["/"]
        for part in pattern.strip("/").split("/"):
            if any(sign in part for sign in "*?["):
                found = [
                    os.path.join(folder, name)
                    for folder in found
                    for name in self.names(folder)
                    if fnmatch.fnmatchcase(name, part)
                ]
            else:
                found = [os.path.join(folder, part) for folder in found]
        return sorted(path for path in found if self.exists(path))

    def free_bytes(self, path: str) -> int | None:
        free = self.record.get("free_bytes", {})
        return free.get(path) if isinstance(free, dict) else None

    def port_is_free(self, port: int) -> bool | None:
        busy = self.record.get("busy_ports")
        return None if busy is None else port not in busy

    def resolves(self, hostname: str) -> bool | None:
        known = self.record.get("known_hosts")
        return None if known is None else hostname in known

    def run(
        self,
        command: Sequence[str],
        timeout_s: float,
        environ: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> Output:
        words = [os.path.basename(command[0]), *command[1:]]
        recorded = self.record.get("commands", {}).get(" ".join(words))
        if recorded is None:
            return Output("", None, problem="missing")
        ended = not recorded.get("problem") and recorded.get("signal") is None
        return Output(
            recorded.get("output", ""),
            recorded.get("code", 0) if ended else None,
            recorded.get("signal"),
            recorded.get("problem", ""),
        )

    def _facts(self) -> Facts:
        record = self.record
        executable = record.get("executable") or self._first("/usr/bin/python3", "/usr/local/bin/python3")
        return Facts(
            system=record.get("system", "Linux"),
            machine=record.get("machine", ""),
            libc=tuple(record.get("libc", ("", ""))),
            python=record.get("python", ""),
            executable=executable,
            search_path=(*self._python_path(), *(record.get("search_path") or self._usual_packages())),
            cwd=record.get("cwd", "/"),
            home=record.get("home", "/root"),
            user=record.get("user", "root"),
            user_id=record.get("user_id", 0),
            groups=tuple(record.get("groups", ())),
            overrides_permissions=record.get("overrides_permissions", record.get("user_id", 0) == 0),
            hostname=record.get("hostname", ""),
            cores=record.get("cores"),
        )

    def _python_path(self) -> list[str]:
        return [folder for folder in self.environ.get("PYTHONPATH", "").split(":") if folder]

    def _first(self, *paths: str) -> str:
        return next((path for path in paths if self.is_file(path)), "python3")

    def _usual_packages(self) -> list[str]:
        patterns = (
            "/usr/local/lib/python3*/site-packages",
            "/usr/local/lib/python3*/dist-packages",
            "/usr/local/python3*/lib/python3*/site-packages",
            "/usr/lib/python3*/site-packages",
            "/usr/lib/python3/dist-packages",
            "/opt/*/lib/python3*/site-packages",
            "/root/*/lib/python3*/site-packages",
        )
        return [folder for pattern in patterns for folder in self.glob(pattern)]


def _read_record(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no readable JSON ({error}). docs/check-env.md shows what it may hold.") from error
    if not isinstance(record, dict):
        raise ConfigError(f"{path} must hold one JSON object; docs/check-env.md shows its keys.")
    unknown = sorted(set(record) - _KEYS)
    if unknown:
        raise ConfigError(f"{path}: unknown keys {', '.join(unknown)}. Known ones: {', '.join(sorted(_KEYS))}.")
    wrong = [
        key for key in ("environ", "commands", "owners", "free_bytes") if not isinstance(record.get(key, {}), dict)
    ]
    if wrong:
        raise ConfigError(f"{path}: {', '.join(wrong)} must be an object with names as keys.")
    return record
