"""Which versions belong together, from compatibility.json. An unknown version has no row: nothing is guessed."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msrun_cli.environment.versions import nearest, series, version_key, without_stage

_FILE = Path(__file__).with_name("compatibility.json")


@dataclass(frozen=True)
class MindSporeRow:
    """cann: recommended first; accepts: internal CANN versions ("7.6"), None = not known; python: lowest, highest."""

    version: str
    cann: tuple[str, ...]
    accepts: tuple[str, ...] | None
    driver: str | None
    python: tuple[str, str]
    glibc: str | None
    glibcxx: str | None
    source: str


@dataclass(frozen=True)
class CannRow:
    """internal: first two numbers of Version=; line: V100R001C20; driver: released with; oldest_driver: that serves."""

    version: str
    internal: str | None
    line: str | None
    driver: str | None
    oldest_driver: str | None
    source: str


@dataclass(frozen=True)
class Chip:
    """names: pattern of the names npu-smi prints; soc: as CANN's folders name it; last_mindspore: None = the newest."""

    family: str
    names: str
    soc: str
    trains: bool
    last_mindspore: str | None
    source: str


@dataclass(frozen=True)
class Matrix:
    mindspore: tuple[MindSporeRow, ...]
    cann: tuple[CannRow, ...]
    chips: tuple[Chip, ...]
    numpy: dict[str, str]

    def mindspore_row(self, version: str) -> MindSporeRow | None:
        wanted = version_key(_release(version))
        return next((row for row in self.mindspore if version_key(row.version) == wanted), None)

    def cann_row(self, version: str) -> CannRow | None:
        """A row of that version, else that of its whole series (9.0.X)."""
        wanted = without_stage(version)
        for row in self.cann:
            if row.version == wanted:
                return row
        if "RC" in wanted:
            return None
        return next((row for row in self.cann if row.version == f"{series(wanted)}.X"), None)

    def cann_names(self, internal: str) -> list[str]:
        """CANN versions with that internal number."""
        return [row.version for row in self.cann if row.internal == internal]

    def knows_internal(self, internal: str) -> bool:
        """Whether any row speaks of that CANN."""
        accepted = {number for row in self.mindspore for number in row.accepts or ()}
        return internal in accepted | {row.internal for row in self.cann}

    def near_mindspore(self, version: str) -> str:
        rows = {row.version: row for row in self.mindspore}
        return "; ".join(f"MindSpore {v} with CANN {rows[v].cann[0]}" for v in nearest(version, rows))

    def near_cann(self, version: str) -> str:
        rows = {row.version: row for row in self.cann if row.driver}
        return "; ".join(f"CANN {v} with driver {rows[v].driver}" for v in nearest(version, rows))

    def chip(self, name: str) -> Chip | None:
        """Of a name such as 910B4, Ascend910 or 310P3. 910B alone is a grade of the first 910, not a 910b."""
        bare = name.strip()
        for candidate in (bare, re.sub(r"^Ascend[ _-]?", "", bare)):
            for chip in self.chips:
                if re.fullmatch(chip.names, candidate, flags=re.IGNORECASE):
                    return chip
        return None


@functools.cache
def load_matrix() -> Matrix:
    data = json.loads(_FILE.read_text(encoding="utf-8"))
    return Matrix(
        mindspore=tuple(map(_mindspore_row, data["mindspore"])),
        cann=tuple(CannRow(**row) for row in data["cann"]),
        chips=tuple(Chip(**row) for row in data["chips"]),
        numpy=data["numpy"],
    )


def _mindspore_row(row: dict[str, Any]) -> MindSporeRow:
    accepts = row["accepts"]
    return MindSporeRow(
        version=row["version"],
        cann=tuple(row["cann"]),
        accepts=None if accepts is None else tuple(accepts),
        driver=row["driver"],
        python=(row["python"][0], row["python"][1]),
        glibc=row.get("glibc"),
        glibcxx=row.get("glibcxx"),
        source=row["source"],
    )


def _release(version: str) -> str:
    """2.7.1.post1 -> 2.7.1; a release candidate stays one."""
    return re.sub(r"\.?post\d+$", "", version.split("+")[0])
