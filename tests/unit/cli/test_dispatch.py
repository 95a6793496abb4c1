from __future__ import annotations

import os
import sys

import pytest

from msrun_cli.cli import dispatch


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines that MindSpore's launcher would get."""
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, words: seen.append(list(words)))
    return seen


@pytest.mark.parametrize(
    "words",
    [
        ["--worker_num=8", "--local_worker_num=8", "train.py", "--epochs", "3"],
        ["--local_worker_num", "2", "train.py"],
        ["--join=True", "train.py"],
        ["train.py"],
        ["/somewhere/eval.py", "a=b"],
        ["python3", "-m", "other"],
    ],
    ids=" ".join,
)
def test_foreign_words_reach_the_launcher_untouched(handed: list[list[str]], words: list[str]) -> None:
    dispatch.main(words)
    assert handed == [[sys.executable, "-m", "mindspore.parallel.cluster.run", *words]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian", "epochs=3"], 'Did you mean "train"?'),
        (["Train"], 'Did you mean "train"?'),
        (["evl"], 'Did you mean "eval"?'),
        (["checkdata"], 'Did you mean "check-data"?'),
        (["check_data", "dataset=coco"], 'Did you mean "check-data"?'),
        (["--deep", "dataset=coco"], "msrun check-data --deep dataset=coco"),
        (["--save=x", "check-data"], "msrun check-data --save=x"),
        (["--compare", "a", "b"], "msrun profile --compare a b"),
        (["profil"], 'Did you mean "profile"?'),
        (["epochs=3"], "msrun train epochs=3"),
        (["-m", "train", "epochs=3,4"], "msrun train -m epochs=3,4"),
        (["--cfg=job", "eval"], "msrun eval --cfg=job"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_slips(handed: list[list[str]], capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert dispatch.main(words) == 2
    assert said in capsys.readouterr().err
    assert handed == []


def test_an_existing_file_is_a_script(handed: list[list[str]], tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trains").touch()
    dispatch.main(["trains"])
    assert len(handed) == 1


def test_the_launcher_is_led_to_this_python(
    handed: list[list[str]], tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only where the name that it starts is this interpreter; else PATH stays and the user is told."""
    for name in ("python3.10", "python", "pytest"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python3").symlink_to("python3.10")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3.10"))
    for words, led in ((["python3", "x.py"], True), (["pytest", "x.py"], True), (["x.py"], False)):
        monkeypatch.setenv("PATH", "/usr/bin")
        dispatch.main(["--worker_num", "2", *words])
        assert os.environ["PATH"].startswith(str(tmp_path)) is led
        assert ("starts `python` from PATH, which is not" in capsys.readouterr().err) is not led
    assert len(handed) == 3


def test_without_mindspore(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(dispatch.importlib.util, "find_spec", lambda name: None)
    assert dispatch.main(["something"]) == 2
    assert "not installed" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["-h"],
        ["--version"],
        ["train", "-h"],
        ["eval", "--help"],
        ["check-data", "-h"],
        ["profile", "-h"],
    ],
)
def test_help_and_version(handed: list[list[str]], capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert dispatch.main(words) == 0
    assert capsys.readouterr().out
    assert handed == []
