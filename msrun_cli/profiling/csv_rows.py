"""Rows of the CSV files that MindSpore's profiler writes."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Rows by column, without the blanks and tabs that some columns carry; a missing cell is ""."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        for row in csv.DictReader(file, restval="", restkey="more"):
            yield {key.strip(): value.strip() for key, value in row.items() if isinstance(value, str)}
