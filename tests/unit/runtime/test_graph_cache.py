from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import msrun_cli.runtime.graph_cache as module
from msrun_cli.runtime.graph_cache import GraphCache, _keep_newest, _key

PLUS, MINUS = "1.0 3.0 5.0 7.0", "-5.0 -3.0 -1.0 1.0"


def start(tmp_path: Path, *names: str, folder: str = "private") -> subprocess.Popen[str]:
    script = Path(__file__).parent / "graph_process.py"
    environment = {**os.environ, "MSRUN_CACHE_DIR": str(tmp_path / "缓存 cache")}
    command = [sys.executable, str(script), str(tmp_path / folder), *names]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def compiled(tmp_path: Path, *names: str) -> list[str]:
    process = start(tmp_path, *names)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and not (tmp_path / "private").exists()
    return output.splitlines()


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "缓存 cache" / "graphs").iterdir())


def test_graphs_are_found_in_any_order_and_are_the_right_ones(tmp_path: Path) -> None:
    assert compiled(tmp_path, "plus", "minus") == [f"plus False {PLUS}", f"minus False {MINUS}"]
    assert len(kept(tmp_path)) == 2
    # MindSpore alone would give each the graph of the other here.
    assert compiled(tmp_path, "minus", "plus-uncached", "plus", "minus-uncached") == [
        f"minus True {MINUS}",
        f"plus-uncached - {PLUS}",
        f"plus True {PLUS}",
        f"minus-uncached - {MINUS}",
    ]
    assert len(kept(tmp_path)) == 2


def test_a_damaged_graph_is_compiled_anew(tmp_path: Path) -> None:
    compiled(tmp_path, "plus")
    (entry,) = kept(tmp_path)
    whole = entry.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:200] + bytes([whole[200] ^ 255]) + whole[201:]):
        entry.write_bytes(damaged)
        assert compiled(tmp_path, "plus") == [f"plus False {PLUS}"]
        assert compiled(tmp_path, "plus") == [f"plus True {PLUS}"]


def test_processes_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    processes = [start(tmp_path, "plus", "minus", folder=f"private{index}") for index in range(3)]
    for process in processes:
        lines = process.communicate(timeout=180)[0].splitlines()
        assert [line.split(maxsplit=2)[2] for line in lines] == [PLUS, MINUS]
    assert len(kept(tmp_path)) == 2


def test_a_file_in_the_way_costs_the_cache_only(tmp_path: Path) -> None:
    (tmp_path / "缓存 cache").write_text("")
    assert compiled(tmp_path, "plus") == [f"plus False {PLUS}"]


def test_keys_depend_on_parts_versions_and_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = {_key({"a": 1}), _key({"a": 2}), _key({"a": 1, "b": None})}
    monkeypatch.setattr(module.ms, "__version__", "0.1")
    keys.add(_key({"a": 1}))
    monkeypatch.undo()
    own = tmp_path / "own_network.py"
    own.write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("own_network")
    keys.add(_key({"a": 1}))
    own.write_text("x = 2\n")
    keys.add(_key({"a": 1}))
    monkeypatch.setattr(sys, "argv", [str(own)])
    keys.add(_key({"a": 1}))
    sys.modules.pop("own_network")
    assert len(keys) == 7
    monkeypatch.undo()
    assert _key({"a": 1}) in keys


def test_only_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRAPHS_KEPT", 2)
    for age, name in enumerate("dabc"):
        (tmp_path / f"{name}.zip").write_bytes(b"")
        os.utime(tmp_path / f"{name}.zip", (1000 - age, 1000 - age))
    _keep_newest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "d.zip"]
    _keep_newest(tmp_path / "missing")


def test_switched_off_nothing_is_kept(tmp_path: Path) -> None:
    graphs = GraphCache(None, tmp_path / "private")
    assert graphs.begin("train") is False
    graphs.end()
    assert not (tmp_path / "private").exists()


def test_without_hard_links_graphs_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setenv("MSRUN_CACHE_DIR", str(tmp_path))
    graphs = GraphCache({"a": 1}, tmp_path / "private")
    graphs.kept.mkdir()
    with zipfile.ZipFile(graphs.kept / f"{_key({'a': 1, 'graph': 'train'})}.zip", "w") as archive:
        archive.writestr("rank_0/graph_cache/compile_cache_0.mindir", "graph")
    monkeypatch.setattr(module.os, "link", refused)
    assert graphs.begin("train") is False and not (tmp_path / "private").exists()
    graphs.end()
    monkeypatch.undo()
    assert module.ms.get_context("enable_compile_cache") is not True
