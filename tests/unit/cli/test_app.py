from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msrun_cli.cli import app as app_module
from msrun_cli.cli.dispatch import main
from msrun_cli.config import bridge

ROOT = Path(__file__).resolve().parents[3]
HEAVY = {"mindspore", "numpy", "cv2", "matplotlib"}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], bridge.Flags]]:
    seen: list[tuple[str, list[str], bridge.Flags]] = []

    def run(command: bridge.Command, overrides: list[str], flags: bridge.Flags) -> int:
        seen.append((command.name, overrides, flags))
        return 7

    monkeypatch.setattr(app_module.bridge, "run", run)
    return seen


@pytest.mark.parametrize(
    "words",
    [
        ["a=1", "b=2", "--cfg", "job", "--resolve"],
        ["--cfg", "job", "a=1", "--resolve", "b=2"],
        ["--resolve", "-c", "job", "a=1", "b=2"],
        ["a=1", "--cfg=job", "b=2", "--resolve"],
    ],
    ids=" ".join,
)
def test_flags_and_overrides_in_any_order(calls, words: list[str]) -> None:
    assert main(["train", *words]) == 7
    assert calls == [("train", ["a=1", "b=2"], bridge.Flags(cfg="job", resolve=True))]


def test_all_flags(calls) -> None:
    main(["eval", "-m", "x=1", "-cn", "mine", "-cd", "folder", "--debug", "~y"])
    expected = bridge.Flags(multirun=True, config_name="mine", config_dir="folder", debug=True)
    assert calls == [("eval", ["x=1", "~y"], expected)]
    main(["train", "-i", "defaults-tree"])
    assert calls[-1][2] == bridge.Flags(info="defaults-tree")


def test_options_of_check_data_are_settings(calls) -> None:
    main(["check-data", "--save", 'my "old" dir', "folder=x", "--json", "--strict", "--deep", "--cfg", "job"])
    overrides = ["folder=x", "json=true", "strict=true", "deep=true", 'save="my \\"old\\" dir"']
    assert calls == [("check-data", overrides, bridge.Flags(cfg="job"))]
    main(["check-data"])
    assert calls[-1] == ("check-data", [], bridge.Flags())


def test_two_profiles_are_compared_without_a_configuration(calls, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(app_module.bridge, "call", lambda *words: seen.append(words) or 0)
    assert main(["profile", "--compare", "run a", "b/profile.json", "--debug"]) == 0
    assert seen == [(bridge.COMPARE_PROFILES, ("run a", "b/profile.json"), True)]
    assert main(["profile", "--compare", "a", "b", "epochs=3"]) == 2
    assert main(["profile", "--compare", "a", "b", "-m"]) == 2
    assert main(["profile", "--compare", "a"]) == 2
    assert len(seen) == 1 and calls == []
    main(["profile", "profile.try=true", "-m"])
    assert calls == [("profile", ["profile.try=true"], bridge.Flags(multirun=True))]


@pytest.mark.parametrize(
    "words", [["--cgf", "job"], ["--cfg", "jobs"], ["-m", "--cfg", "job"], ["--resolve"], ["-p", "model"]], ids=" ".join
)
def test_wrong_flags(calls, words: list[str]) -> None:
    assert main(["train", *words]) == 2
    assert calls == []


def modules_after(*words: str) -> set[str]:
    """Top-level modules that the program has imported when it ends."""
    code = (
        "import sys\nfrom msrun_cli.cli.dispatch import main\n"
        f"code = main({list(words)!r})\n"
        "print('MODULES', code, *{name.split('.')[0] for name in sys.modules})"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=ROOT)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("MODULES")]
    _, code_text, *names = line.split()
    assert code_text == "0", done.stderr
    return set(names)


def test_help_imports_nothing_heavy() -> None:
    assert not modules_after("--help") & {*HEAVY, "hydra", "omegaconf", "rich", "yaml"}
    assert not modules_after("train", "--help") & {*HEAVY, "hydra", "omegaconf", "rich", "yaml"}


def test_cfg_imports_no_framework() -> None:
    assert not modules_after("train", "--cfg", "job", "model=yolov5s") & HEAVY


def test_both_names_are_the_same_program() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "msrun_cli", "train", "--cfg", "job", "-p", "model.name", "model=yolov5x"]
    assert subprocess.run(words, capture_output=True, text=True, env=env).stdout == "yolov5x\n"
