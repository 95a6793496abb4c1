"""Which Python packages are installed, read from their metadata folders; nothing is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from glob import escape

from msrun_cli.environment.host import Host

_FOLDER = re.compile(r"^(?P<name>[A-Za-z0-9_.]+?)-(?P<version>\d[^-]*)(-py[\d.]+)?\.(dist-info|egg-info)$")
_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(;.*)?$")


@dataclass(frozen=True)
class Package:
    """name: canonical; location: the folder it is imported from; metadata: its dist-info folder."""

    name: str
    version: str
    location: str
    metadata: str


@dataclass(frozen=True)
class Requirement:
    """bounds: such as ">=1.25,<2", "" for none."""

    name: str
    bounds: str


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_packages(host: Host, folders: Sequence[str]) -> dict[str, list[Package]]:
    """All copies by canonical name; the first is the one that Python takes."""
    found: dict[str, list[Package]] = {}
    for folder in dict.fromkeys(folders):
        for entry in host.names(folder):
            match = _FOLDER.match(entry)
            if match:
                name = canonical(match["name"])
                found.setdefault(name, []).append(
                    Package(name, match["version"], folder, os.path.join(folder, entry)),
                )
    return found


def requirements(host: Host, package: Package) -> list[Requirement]:
    """Of the package alone: those for extras or under a condition are left out."""
    text = host.read(os.path.join(package.metadata, "METADATA")) or host.read(
        os.path.join(package.metadata, "PKG-INFO")
    )
    found = []
    for line in (text or "").splitlines():
        if not line:
            break  # the description follows
        key, _, value = line.partition(":")
        match = _REQUIREMENT.match(value) if key == "Requires-Dist" else None
        if match and not match[3]:
            found.append(Requirement(canonical(match[1]), match[2].replace(" ", "")))
    return found


def module_folders(host: Host, folders: Sequence[str], module: str) -> list[str]:
    """Folders of `folders` that hold the module or package."""
    return [
        folder
        for folder in dict.fromkeys(folders)
        if host.is_dir(os.path.join(folder, module))
        or host.is_file(os.path.join(folder, f"{module}.py"))
        or host.glob(f"{escape(folder)}/{module}.*so")
    ]
