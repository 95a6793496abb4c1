"""A run that is stopped and gone on with ends as if nobody had disturbed it."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import TINY, environment, msrun, only_run, return_value

SETTINGS = (
    *("device.deterministic=true", "logger.every=3", "checkpoint.every_steps=1"),
    *("freeze=[model.0.*]", "optimizer.layer_decay=0.9", "+optimizer.groups.head={pattern: model.24.*, lr_scale: 2}"),
    *("save_best_on=loss", "early_stopping.patience=2"),
)
EXACT = ("kind", "epoch", "step", "loss", "box", "obj", "cls", "lr", "grad_norm", "map50_95")


def rows(run: Path) -> list[list[str]]:
    with (run / "metrics.csv").open(newline="") as file:
        return [[row[name] for name in EXACT] for row in csv.DictReader(file)]


def stop(folder: Path, words: list[str], number: signal.Signals) -> str:
    """Send the signal as soon as the fifth step is saved; what the run said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "msrun_cli", "train", *words],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        states = list(folder.glob("outputs/train/*/*/checkpoints/state.json"))
        if states and json.loads(states[0].read_text())["step"] >= 5:
            break
        time.sleep(0.02)
    process.send_signal(number)
    return process.communicate(timeout=120)[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    done = msrun("train", *TINY, *SETTINGS, "epochs=3", "evaluate_every=1", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return only_run(folder / "outputs" / "train")


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_same_losses_to_the_bit(number, whole, tmp_path):
    said = stop(tmp_path, [*TINY, *SETTINGS, "epochs=3", "evaluate_every=1"], number)
    run = only_run(tmp_path / "outputs" / "train")
    if number == signal.SIGTERM:
        assert f"Go on with: msrun train resume={run}" in said
    if number == signal.SIGKILL:  # the newest is damaged on top
        with (run / "checkpoints" / "last.ckpt").open("r+b") as file:
            file.seek(2000)
            file.write(b"damage")
    resume = f"resume={run}" if number == signal.SIGTERM else "resume=auto"
    done = msrun("train", resume, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "loading the training graph" in done.stdout
    assert ("last_2.ckpt instead" in done.stdout) == (number == signal.SIGKILL)
    assert rows(run) == rows(whole)
    assert json.loads((run / "return_value.json").read_text())["steps"] == 12

    done = msrun("train", f"resume={run}", cwd=tmp_path)
    assert done.returncode == 0 and "nothing left to train" in done.stdout
    assert rows(run) == rows(whole)


def test_more_epochs_and_what_is_refused(whole, tmp_path):
    counted_from = json.loads((whole / "checkpoints" / "state.json").read_text())["patience_epoch"]
    patience = f"early_stopping.patience={4 - counted_from}"  # used up by one more epoch that is not much better
    words = ("epochs=9", patience, "early_stopping.min_delta=1e9")
    done = msrun("train", f"resume={whole}", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "epochs=9 (was 3)" in done.stderr
    assert rows(whole)[-1][:3] == ["epoch", "4", "16"]
    assert f"{patience}: loss" in return_value(whole)["stopped_by"]
    done = msrun("train", f"resume={whole}", cwd=tmp_path)
    assert done.returncode == 0 and "early stopping ended it" in done.stdout

    for words, code, said in (
        (["model=yolov5s"], 5, "is from another model"),
        (["dataset.train_images=40"], 5, "was trained on other data: 32 training images then, 40 now"),
        (["experiment=bccd_yolov5n"], 2, "does not go with resume"),
        (["freeze=[]"], 2, "freeze=[] does not go with resume"),
        (["seed=1,2", "-m"], 2, "resume does not go with -m"),
    ):
        done = msrun("train", f"resume={whole}", "epochs=9", "early_stopping.patience=null", *words, cwd=tmp_path)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_nothing_to_go_on_from(tmp_path):
    done = msrun("train", "resume=nowhere/run", cwd=tmp_path)
    assert done.returncode == 5 and "no such file" in done.stderr
    (tmp_path / "empty").mkdir()
    done = msrun("train", "resume=empty", cwd=tmp_path)
    assert done.returncode == 5 and "there is no checkpoint" in done.stderr
    done = msrun("train", "resume=auto", "--cfg", "job", cwd=tmp_path)
    assert done.returncode == 0 and "this is a new one" in done.stderr and "resume: null" in done.stdout
