from __future__ import annotations

import sys
from pathlib import Path

import pytest

from msrun_cli.config.signatures import TargetError, signature_of

SOURCE = """
raise RuntimeError("this module must not be imported")

from dataclasses import dataclass
from typing import ClassVar, Literal, Optional

import other.thing as imported

class Base:
    def __init__(self, size: int, name: "str | None" = None, *, rate: float = 0.1, kind: Literal["a", "b"] = "a"): ...

class Child(Base): ...

class Foreign(imported.Thing): ...

class Plain: ...

@dataclass
class Data:
    count: int
    note: Optional[str] = None
    SHARED: ClassVar[int] = 3

def function(items: list[int], table: dict[str, int] | None = None, other=None, **rest): ...
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sigpkg" / "sub").mkdir(parents=True)
    (tmp_path / "sigpkg" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (tmp_path / "sigpkg" / "sub" / "mod.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MSRUN_TARGET_PREFIXES", "sigpkg")


def test_parameters() -> None:
    signature = signature_of("sigpkg.sub.mod.Child")
    assert signature is not None
    assert {name: item.required for name, item in signature.parameters.items()} == {
        "size": True,
        "name": False,
        "rate": False,
        "kind": False,
    }
    assert not signature.any_keyword
    assert "sigpkg" not in sys.modules


@pytest.mark.parametrize(
    ("target", "name", "value", "fits"),
    [
        ("Base", "size", 3, True),
        ("Base", "size", 3.5, False),
        ("Base", "size", True, False),
        ("Base", "size", "3", False),
        ("Base", "name", None, True),
        ("Base", "name", 3, False),
        ("Base", "rate", 1, True),
        ("Base", "rate", "x", False),
        ("Base", "rate", None, False),
        ("Base", "kind", "b", True),
        ("Base", "kind", "c", False),
        ("Data", "note", None, True),
        ("Data", "note", [1], False),
        ("function", "items", [1], True),
        ("function", "items", 1, False),
        ("function", "table", {"a": 1}, True),
        ("function", "table", None, True),
        ("function", "table", "x", False),
        ("function", "other", "anything", True),
    ],
)
def test_types(target: str, name: str, value: object, fits: bool) -> None:
    signature = signature_of(f"sigpkg.sub.mod.{target}")
    assert signature is not None
    assert (signature.parameters[name].mismatch(value) is None) == fits


def test_kinds_of_targets() -> None:
    assert set(signature_of("sigpkg.sub.mod.Data").parameters) == {"count", "note"}  # type: ignore[union-attr]
    assert signature_of("sigpkg.sub.mod.Plain").parameters == {}  # type: ignore[union-attr]
    assert signature_of("sigpkg.sub.mod.function").any_keyword  # type: ignore[union-attr]
    assert signature_of("sigpkg.sub.mod.Foreign") is None  # its base lies elsewhere
    assert signature_of("sigpkg.sub.mod.imported") is None  # a name that the module imports


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("sigpkg.sub.mod.Bse", 'mean "Base"?'),
        ("sigpkgs.sub.mod.Base", "MSRUN_TARGET_PREFIXES=sigpkg,sigpkgs.sub.mod"),
        ("os.system", "MSRUN_TARGET_PREFIXES"),
        ("msrun_cli.common.files.os.system", "no class or function"),
        ("msrun_cli.common.filse.write_text", 'mean "files"?'),
        ("msrun_cli.common.files", "name of a class or function"),
        ("msrun_clix.common", "only names below msrun_cli"),
    ],
)
def test_refused(target: str, word: str) -> None:
    with pytest.raises(TargetError, match=word.replace("?", r"\?")):
        signature_of(target)
