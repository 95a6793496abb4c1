"""The four verdicts of a check, the same for data and for the environment."""

from __future__ import annotations

from collections.abc import Iterable

PASS, WARN, FAIL, SKIP = "pass", "warn", "fail", "skip"
_RANK = {SKIP: 0, PASS: 0, WARN: 1, FAIL: 2}


def worst(statuses: Iterable[str]) -> str:
    """pass, warn or fail; skipped checks do not count."""
    return max((status for status in statuses if status != SKIP), key=_RANK.__getitem__, default=PASS)
