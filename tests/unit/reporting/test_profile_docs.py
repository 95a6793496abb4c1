"""docs/profile.md names every key of profile.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import profile_documents
import pytest

from msrun_cli.profiling.document import read_document, write_document

DOCS = Path(__file__).resolve().parents[3] / "docs" / "profile.md"
WHERE = {"settings", "device"}  # "what was profiled, and where": not listed one by one


@pytest.fixture(scope="module")
def rows() -> dict[str, str]:
    """Rows of the table below "profile.json", by each key of their first cell."""
    section = DOCS.read_text(encoding="utf-8").partition("## profile.json")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return {key: line for line in lines for key in re.findall(r"`(\w+)`", line.split("|")[1])}


def inner_keys(value: Any) -> set[str]:
    """Of an object, or of the objects in a list; objects whose keys are data (numbers, names) stay closed."""
    found = value if isinstance(value, list) else [value]
    return {key for item in found if isinstance(item, dict) for key in item}


def test_every_key_is_in_the_docs(rows, tmp_path):
    write_document(tmp_path, profile_documents.document(tried=True, raw=tmp_path / "raw"))
    document = json.loads((tmp_path / "profile.json").read_text(encoding="utf-8"))
    assert set(document) == set(rows)
    rows |= {key: rows["step"] for key in ("alone", "sunk")}  # "as step ..."
    for key, value in document.items():
        for inner in inner_keys(value) - ({*value} if key in WHERE else set()):
            assert re.search(rf"\b{inner}\b", rows[key]), f"{key}.{inner}"
    deeper = (("operators", "by_type"), ("operators", "by_name"), ("data", "stages"), ("step", "step_ms"))
    for key, inner in deeper:
        for name in inner_keys(document[key][inner]):
            assert re.search(rf"\b{name}\b", rows[key]), f"{key}.{inner}.{name}"
    assert set(document["step"]) - set(document["alone"]) == {"breakdown_ms", "timeline_ms", "totals_ms"}
    assert read_document(tmp_path)["schema_version"] == 1
