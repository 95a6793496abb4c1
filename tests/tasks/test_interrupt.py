"""Ctrl-C and SIGTERM end a training within its step, with a checkpoint and no process left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from command import TINY, environment, msrun, only_run

SETTINGS = ("device.mode=pynative", "epochs=50", "logger.every=1", "dataset.python_multiprocessing=true")


def children_of(group: int) -> list[str]:
    """Living processes of a process group."""
    listed = subprocess.run(["ps", "-o", "pid=,stat=", "-g", str(group)], capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if "Z" not in line.split()[1]]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_saves_and_exits(number, code, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "msrun_cli", "train", *TINY, *SETTINGS],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        for line in process.stdout:
            if "step 2/4" in line:
                break
        os.killpg(process.pid, number)
        output, error = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == code, output + error
    run = only_run(tmp_path / "outputs" / "train")
    checkpoint = run / "checkpoints" / "last.ckpt"
    assert str(checkpoint) in error
    deadline = time.monotonic() + 10
    while children_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert children_of(process.pid) == []
    if number == signal.SIGINT:
        done = msrun("eval", f"checkpoint={checkpoint}", "device.mode=pynative", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_folder_that_is_removed_ends_with_words(tmp_path):
    words = ("dataset.train_images=16", "device.mode=pynative", "epochs=1", "logger.every=1")
    process = subprocess.Popen(
        [sys.executable, "-m", "msrun_cli", "train", *TINY[1:], *words],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = []
    for line in process.stdout:
        said.append(line)
        if "step 1/2" in line:
            shutil.rmtree(only_run(tmp_path / "outputs" / "train"))
    process.wait(timeout=120)
    text = "".join(said)
    assert process.returncode == 0 and "Traceback" not in text, text
    assert "no curves: " in text
    (value,) = tmp_path.glob("outputs/train/*/*/return_value.json")
    assert json.loads(value.read_text())["steps"] == 2
    assert (value.parent / "checkpoints" / "last.ckpt").exists()
