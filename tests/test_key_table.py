"""docs/configuration.md is what its script writes, and says something about every key."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "write_key_table.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_key_table", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_file_is_up_to_date_and_complete(script: ModuleType) -> None:
    written = script.FILE.read_text(encoding="utf-8")
    assert written == script.text(), "run: python scripts/write_key_table.py"
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in written.splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    assert [row[0] for row in rows if not row[-1].strip()] == []  # keys without a meaning
    keys = {row[0].strip(" `") for row in rows}
    assert {"freeze", "early_stopping.patience", "checkpoint.async", "optimizer.groups.NAME.lr_scale", "lr"} <= keys
