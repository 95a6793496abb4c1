"""The log doctor: known error texts in a log, their cause and remedy."""

from __future__ import annotations

import functools
import json
import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("known_errors.json")
_LONGEST_LINE = 4000  # characters of a line that are looked at
_LONGEST_QUOTE = 160


@dataclass(frozen=True)
class KnownError:
    """id: stable; words, pattern: see known_errors.json; checks: ids of `check-env` that look at the cause."""

    id: str
    words: tuple[str, ...]
    pattern: str
    cause: str
    remedy: str
    checks: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Explanation:
    """line: number of the first line that has the text, from 1; count: number of such lines."""

    error: KnownError
    line: int
    text: str
    count: int

    def as_json(self) -> dict[str, Any]:
        error = self.error
        return {
            "error": error.id,
            "line": self.line,
            "text": self.text,
            "count": self.count,
            "cause": error.cause,
            "remedy": error.remedy,
            "checks": list(error.checks),
        }

    def paragraph(self, numbered: bool = True) -> str:
        """numbered: name the line, where the text comes from a log."""
        text = self.text if len(self.text) <= _LONGEST_QUOTE else f"{self.text[: _LONGEST_QUOTE - 3]}..."
        lines = [f"{self.error.id} (line {self.line}: {text})" if numbered else f"{self.error.id} ({text})"]
        lines += [f"  cause:  {self.error.cause}", f"  remedy: {self.error.remedy}"]
        if self.error.checks:
            lines.append(f"  check:  msrun check-env --only {','.join(self.error.checks)}")
        return "\n".join(lines)


@functools.cache
def known_errors() -> tuple[KnownError, ...]:
    data = json.loads(_FILE.read_text(encoding="utf-8"))
    return tuple(
        KnownError(**{**entry, "words": tuple(entry["words"]), "checks": tuple(entry["checks"])})
        for entry in data["errors"]
    )


def explain_lines(lines: Iterable[str]) -> list[Explanation]:
    """What is known about a log, in the order of the table: the most telling texts first."""
    first: dict[str, tuple[int, str]] = {}
    counts: dict[str, int] = {}
    words = tuple({word for error in known_errors() for word in error.words})
    for number, line in enumerate(lines, start=1):
        lowered = line[:_LONGEST_LINE].lower()
        if not any(word in lowered for word in words):
            continue
        for error in known_errors():
            if any(word in lowered for word in error.words) and re.search(error.pattern, line[:_LONGEST_LINE]):
                first.setdefault(error.id, (number, line[:_LONGEST_LINE].strip()))
                counts[error.id] = counts.get(error.id, 0) + 1
    return [Explanation(e, *first[e.id], counts[e.id]) for e in known_errors() if e.id in first]


def explain_exception(error: BaseException) -> list[Explanation]:
    """What is known about the message of an exception, and of those that caused it."""
    messages: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        messages += "".join(traceback.format_exception_only(current)).splitlines()
        current = current.__cause__ or current.__context__
    return explain_lines(messages)
