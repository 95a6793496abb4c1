"""Completion uses a private name of Hydra: these tests tell when it changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msrun_cli.cli import completion

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        ("model=", {"model=yolov5n", "model=yolov5x"}),
        ("model=yolov5s", {"model=yolov5s"}),
        ("optimizer.mo", {"optimizer.momentum="}),
        ("epo", {"epochs="}),
        ("transforms@train_tr", set()),
        ("train_transforms.mos", {"train_transforms.mosaic."}),
    ],
)
def test_query(current: str, expected: set[str]) -> None:
    assert expected <= set(completion.query("train", None, [], current))


def test_query_knows_the_overrides_before() -> None:
    assert "dataset.root=" in completion.query("train", None, ["dataset=coco"], "dataset.ro")
    assert completion.query("train", None, [], "dataset.ro") == []


def test_own_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("name: mine\n")
    assert "model=mine" in completion.query("train", str(tmp_path), [], "model=")


@pytest.mark.parametrize(
    ("line", "cword", "expected"),
    [
        ("msrun train model = yolov5", 4, {"yolov5n", "yolov5s", "yolov5m", "yolov5l", "yolov5x"}),
        ("msrun train model =", 3, {path.stem for path in (ROOT / "conf" / "model").glob("*.yaml")}),
        ("msrun train epo", 2, {"epochs="}),
        ("msrun train dataset = coco dataset.ro", 5, {"dataset.root="}),
        ("msrun train --cfg job see", 4, {"seed="}),
        ("msrun check-data --save dir near", 4, {"near_duplicates="}),
        ("msrun check-data dataset = co", 4, {"coco"}),
        ("msrun check", 1, {"check-data", "check-env"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bash(line: str, cword: int, expected: set[str]) -> None:
    """Bash breaks words at `=`; the whole program answers as it does for the shell."""
    variables = {"_MSRUN_COMPLETE": "complete_bash", "COMP_WORDS": line.replace(" ", "\n"), "COMP_CWORD": str(cword)}
    env = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    code = "import sys; sys.argv = ['msrun']\nfrom msrun_cli.cli.dispatch import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert set(done.stdout.split()) == expected, done.stderr


def test_zsh() -> None:
    variables = {"_MSRUN_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "msrun train model=yolov5"}
    env = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    env.pop("COMP_WORDS", None)
    code = "import sys; sys.argv = ['msrun']\nfrom msrun_cli.cli.dispatch import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert "model=yolov5n" in done.stdout, done.stderr


def test_faults_are_silent() -> None:
    class Context:
        info_name = "no-such-command"

    assert completion.complete_override(Context(), "x") == []
