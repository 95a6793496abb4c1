"""The nearest valid name for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The most similar of `valid`, or None where nothing is similar; upper and lower case count as the same."""
    by_lower = {option.lower(): option for option in valid}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, valid: Iterable[str], section: str = "") -> str:
    """` Did you mean "section.x"?` with a leading space, or an empty text."""
    found = nearest(name, valid)
    return f' Did you mean "{section}{"." if section else ""}{found}"?' if found else ""


def listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
