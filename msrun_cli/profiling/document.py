"""profile.json: the document that a profile leaves (docs/profile.md describes it), and reading it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msrun_cli.common.errors import ConfigError
from msrun_cli.common.files import write_json

FILE = "profile.json"
KIND = "msrun-profile"
SCHEMA_VERSION = 1


def write_document(folder: Path, document: dict[str, Any]) -> Path:
    write_json(folder / FILE, {"kind": KIND, "schema_version": SCHEMA_VERSION, **document})
    return folder / FILE


def read_document(path: Path) -> dict[str, Any]:
    """path: a run folder or its profile.json.

    Raises:
        ConfigError: there is none, it is damaged, or written by a later version.
    """
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"{path}: there is no {FILE} there. Give the run folder of an `msrun profile`{_near(path)}.")
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.") from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ConfigError(f"{file} was not written by `msrun profile`.")
    version = document.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise ConfigError(
            f"{file} has schema_version {version}; this msrun-cli reads up to {SCHEMA_VERSION}. Update it."
        )
    return document


def _near(path: Path) -> str:
    """Profiles below the folder, or below its nearest existing parent."""
    folder = path if path.is_dir() else path.parent
    if not folder.is_dir():
        return ""
    depths = (sorted(folder.glob(f"{'*/' * depth}{FILE}"))[-3:] for depth in (1, 2, 3))
    found = next((files for files in depths if files), [])
    return f", such as {', '.join(str(file.parent) for file in found)}" if found else ""
