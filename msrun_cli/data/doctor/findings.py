"""What a check found, in the words that tables, JSON and pictures share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from msrun_cli.common.status import PASS, SKIP

# A report lists this many cases of a check; `count` always has the whole number.
MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Example:
    """One case.

    split, index, path: the record it is about, None when it is about none; box_xyxy: in pixels of its file;
    twin: path of an image that is the same or nearly
    """

    text: str
    split: str | None = None
    index: int | None = None
    path: str | None = None
    box_xyxy: tuple[float, float, float, float] | None = None
    twin: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    check: its id; status: pass, warn, fail or skip; count: number of cases, also of those that do no harm
    examples: the cases, at most MOST_LISTED; summary: what was found, one line; advice: what to do, "" when fine
    """

    check: str
    status: str
    count: int
    summary: str
    examples: tuple[Example, ...] = ()
    advice: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def finding(
    check: str, status: str, examples: Sequence[Example], summary: str, advice: str, count: int | None = None
) -> Finding:
    """`status` if there are cases, else pass. count: where it is not the number of examples."""
    number = len(examples) if count is None else count
    if not number:
        return Finding(check, PASS, 0, "none")
    return Finding(check, status, number, summary, tuple(examples[:MOST_LISTED]), advice if status != PASS else "")


def skipped(check: str, reason: str) -> Finding:
    return Finding(check, SKIP, 0, reason)
