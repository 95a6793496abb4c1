from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from msrun_cli.common.errors import DataError
from msrun_cli.data import json_stream
from msrun_cli.data.json_stream import read_lists

CONTENT = {
    "nested": {"a": [1, {"b": ["]", "}", '"\\', '\\"']}], "c": None},
    "one": [1, -2.5e-3, True, None, "ä\u4e2d\U0001f600", [], {}, {"x": [[1, 2], {"y": "]"}]}, 12345678901234567890],
    "junk": [{"k": [[[]]]}, "text"],
    "empty": [],
    "number": 12.5,
    "two": [{"n": number, "s": "x" * (number % 7)} for number in range(50)],
}


def lists_of(path: Path, *names: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in names}
    lists = read_lists(path, {name: found[name].append for name in names})
    return {name: found[name] for name in names if name in lists}


@pytest.fixture(params=[1, 2, 3, 7, 64, 1 << 20])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Pieces so small that every token is cut somewhere."""
    monkeypatch.setattr(json_stream, "_CHUNK", request.param)
    return request.param


@pytest.mark.parametrize("indent", [None, 0, 3])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_lists_come_as_json_load_gives_them(tmp_path: Path, chunk: int, indent: int | None, ascii_only: bool) -> None:
    path = tmp_path / "a.json"
    names = list(CONTENT)
    for seed in range(3):
        random.Random(seed).shuffle(names)
        text = json.dumps({name: CONTENT[name] for name in names}, indent=indent, ensure_ascii=ascii_only)
        path.write_text(text.replace("\n", "\r\n") + " \t\n", encoding="utf-8-sig" if seed else "utf-8", newline="")
        found = lists_of(path, "one", "two", "empty", "absent", "number")
        assert found == {name: CONTENT[name] for name in ("one", "two", "empty")}


@pytest.mark.parametrize(
    "text, said",
    [
        ("", r"Expecting value: line 1 column 1 \(char 0\)"),
        ("{", r"Expecting property name .*line 1 column 2"),
        ('{"one": [1, 2', r"Expecting ',' delimiter: line 1 column 14"),
        ('{"one": [1 2]}', r"Expecting ',' delimiter: line 1 column 12"),
        ('{"one": [1,]}', r"Expecting value: line 1 column 12"),
        ('{"one": [1,\n {"a": tru}]}', r"Expecting value: line 2 column 8 \(char 19\)"),
        ('{"one": ["abc', r"Unterminated string starting at: line 1 column 10"),
        ('{"one" [1]}', r"Expecting ':' delimiter: line 1 column 8"),
        ('{"one": [1] "two": []}', r"Expecting ',' delimiter: line 1 column 13"),
        ('{"one": [1],}', r"Expecting property name .*line 1 column 13"),
        ('{"one": [1]} x', r"Extra data: line 1 column 14"),
        ('{"one": [], "one": []}', "Two lists named one"),
        ("{'one': []}", "Expecting property name"),
        ('{"one": ["\x01"]}', "Invalid control character"),
        ('{"one": ' + "[" * 100_000, "nested too deeply"),
        ('{"one": [' + "9" * 10_000 + "]}", "not valid JSON"),
    ],
)
def test_faults_are_placed(tmp_path: Path, chunk: int, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, newline="")
    with pytest.raises(DataError, match=said) as caught:
        lists_of(path, "one", "two")
    assert str(path) in str(caught.value)


def test_lines_are_counted_over_pieces(tmp_path: Path, chunk: int) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"one": [\n' + "1,\n" * 100 + "  oops]}", newline="")
    with pytest.raises(DataError, match=r"line 102 column 3 \(char 312\)"):
        lists_of(path, "one")


def test_what_is_no_object_has_no_lists(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text in ("[]", "3", '"one"', "{}"):
        path.write_text(text)
        assert lists_of(path, "one") == {}


def test_foreign_bytes_and_missing_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"one": ["\xff\xd8"]}')
    with pytest.raises(DataError, match="a.json is not valid JSON: 'utf-8'"):
        lists_of(path, "one")
    path.write_text('{"one": []}', encoding="utf-16")
    with pytest.raises(DataError, match="not valid JSON"):
        lists_of(path, "one")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        lists_of(tmp_path / "b.json", "one")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        lists_of(tmp_path, "one")
