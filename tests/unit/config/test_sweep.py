from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


def test_each_job_is_a_process_and_a_failed_one_does_not_stop_the_rest(call, tmp_path: Path) -> None:
    result = call("train", "optimizer.lr=0.1,0.2", "seed=13,1", "hydra.sweep.dir=sweep", multirun=True)
    assert result.code == 1
    assert result.configs == []  # none ran in this process
    values = [json.loads((tmp_path / "sweep" / n / "return_value.json").read_text())["objective"] for n in ("1", "3")]
    assert values == [0.1, 0.2]
    assert result.err.count("ended with exit code 3") == 2
    assert "optimizer.lr=0.2 seed=13" in result.err


def test_basic_launcher_runs_all_jobs_too(call) -> None:
    result = call("train", "seed=13,1", "hydra/launcher=basic", multirun=True)
    assert result.code == 1
    assert [config.seed for config in result.configs] == [13, 1]
    assert "error: job `seed=13`: images are missing" in result.err


def test_all_jobs_are_checked_before_the_first_starts(call, tmp_path: Path) -> None:
    result = call("train", "epochs=1,0", "amp.level=O1,O9", multirun=True)
    assert result.code == 2
    assert result.err.count("error:") == 2
    assert "epochs=0" in result.err
    assert "amp.level=O9" in result.err
    assert not (tmp_path / "outputs").exists()


def test_several_values_need_multirun(call) -> None:
    result = call("train", "seed=1,2")
    assert result.code == 2
    assert "add -m" in result.err


def test_config_name_and_folder_reach_the_jobs(call, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "mine.yaml").write_text("defaults: [train, _self_]\nepochs: 8\n")
    result = call(
        "train", "seed=1", "hydra.sweep.dir=a b", multirun=True, config_name="mine", config_dir=str(tmp_path / "mine")
    )
    assert result.code == 0, result.err
    assert "epochs: 8" in (tmp_path / "a b" / "0" / "config.yaml").read_text()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"])
def test_a_stopped_sweep_leaves_no_process(call, tmp_path: Path, number: signal.Signals, code: int) -> None:
    words = [sys.executable, "fake_program.py", "train", "-m", "seed=16,1", "hydra.sweep.dir=sweep"]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "sweep" / "0" / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        children = _children(process.pid)
        assert len(children) == 1
        process.send_signal(number)
        assert process.wait(30) == code
        assert not any(Path(f"/proc/{child}").exists() for child in children)
        assert not (tmp_path / "sweep" / "1").exists()
    finally:
        process.kill()
        process.wait()


def _children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, env=os.environ)
    return [int(word) for word in listed.stdout.split()]
