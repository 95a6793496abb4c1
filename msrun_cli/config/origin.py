"""Which override or which line of which YAML file gave a key its value."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override

from msrun_cli.config.composer import SourceFile

KeyPath = tuple[str, ...]


@dataclass
class Origins:
    """load: gives the files in the order in which they were merged, and is only called when there is a fault to place.

    overrides: value overrides of the command line, in order; extra: files merged after all others.
    """

    load: Callable[[], list[SourceFile]] = list
    overrides: Sequence[Override] = field(default_factory=list)
    extra: list[SourceFile] = field(default_factory=list)

    @functools.cached_property
    def _loaded(self) -> list[SourceFile]:
        return self.load()

    @property
    def files(self) -> list[SourceFile]:
        return [*self._loaded, *self.extra]

    def where(self, path: KeyPath) -> str:
        """` (command line: epochs=0)` or ` (conf/train.yaml, line 30)`, with a leading space; empty when unknown."""
        override = self._override(path)
        if override is not None:
            return (
                " (command line)"
                if override.key_or_group == ".".join(path)
                else f" (command line: {override.input_line})"
            )
        file = self._file(path)
        if file is None:
            return ""
        line = _line(file.path, path[len(file.package) :])
        return f" ({short(file.path)}, line {line})" if line else f" ({short(file.path)})"

    def comment(self, path: KeyPath) -> str:
        """The comment behind the key in its YAML file, which says what the value is; empty when there is none."""
        file = self._file(path)
        line = _line(file.path, path[len(file.package) :]) if file else 0
        if not file or not line:
            return ""
        _, _, text = file.path.read_text(encoding="utf-8").splitlines()[line - 1].partition(" # ")
        return text.strip()

    def _override(self, path: KeyPath) -> Override | None:
        for override in reversed(self.overrides):
            key = tuple(override.key_or_group.split("."))
            if path[: len(key)] == key and _reaches(override.value(), path[len(key) :]):
                return override
        return None

    def _file(self, path: KeyPath) -> SourceFile | None:
        for file in reversed(self.files):
            if path[: len(file.package)] == file.package and _reaches(file.data, path[len(file.package) :]):
                return file
        return None


def _reaches(data: Any, rest: KeyPath) -> bool:
    for name in rest:
        if not isinstance(data, dict) or name not in data:
            return False
        data = data[name]
    return True


def _line(path: Path, keys: KeyPath) -> int:
    """Line (from 1) of a key in a YAML file; 0 when it is not found."""
    try:
        node = _tree(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return 0
    line = 0
    for name in keys:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        match = [(key, value) for key, value in pairs if key.value == name]
        if not match:
            return 0
        line, node = match[-1][0].start_mark.line + 1, match[-1][1]
    return line


@functools.lru_cache(maxsize=64)
def _tree(text: str) -> yaml.Node | None:
    return yaml.compose(text, Loader=yaml.SafeLoader)


def short(path: Path) -> str:
    """Relative to the working directory where that is shorter to read."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
