"""`launch=local` on this machine: two processes compute what one does, and end together when one of them fails."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from command import return_value
from launched import (
    SETTINGS,
    WITH_NORM,
    losses,
    metrics,
    nothing_left,
    of_job,
    parameters,
    run,
    said_by,
    started,
    wait_for,
)
from test_classification import write_folders

ONE, TWO = ("batch_size=8",), ("batch_size=4", "launch=local", "launch.workers=2")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    root = write_folders(tmp_path_factory.mktemp("数据 two ranks") / "my data", train=11, val=3)
    return f"dataset.root={root}"


@pytest.fixture(scope="module")
def one(data, tmp_path_factory) -> Path:
    """The run of one process."""
    folder = tmp_path_factory.mktemp("one") / "run"
    done = run("train", *SETTINGS, data, *ONE, f"hydra.run.dir={folder}", cwd=folder.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def two(data, tmp_path_factory) -> Path:
    """The same of two."""
    folder = tmp_path_factory.mktemp("two ranks 二") / "run"
    done = run("train", *SETTINGS, data, *TWO, f"hydra.run.dir='{folder}'", cwd=folder.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "epoch 2/2  step 4/4" in done.stdout and "[WARNING]" not in done.stdout
    assert nothing_left(folder)
    return folder


def assert_same(run_folder: Path, expected: Path, skip: int = 0) -> None:
    """Losses, metrics and all that a checkpoint holds."""
    np.testing.assert_allclose(losses(run_folder)[skip:], losses(expected)[skip:], rtol=1e-5)
    assert metrics(run_folder) == metrics(expected)
    arrays, wanted = parameters(run_folder), parameters(expected)
    assert arrays.keys() == wanted.keys()
    for name, array in arrays.items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_two_ranks_compute_what_one_does(one, two):
    assert len(losses(one)) == 8 and losses(one)[-1] < losses(one)[0] - 0.2
    assert_same(two, one)
    ours, theirs = return_value(two), return_value(one)
    assert {name: ours[name] for name in ("objective", "top1", "steps")} == {
        name: theirs[name] for name in ("objective", "top1", "steps")
    }


def test_every_rank_has_its_log_and_rank_0_alone_writes(two):
    logs = {path.name for path in (two / "logs").iterdir()}
    assert logs >= {"worker_0.log", "worker_1.log", "scheduler.log", "launcher_0.log", "node_0.yaml"}
    second = (two / "logs" / "worker_1.log").read_text(encoding="utf-8")
    assert "rank 1 of 2, data_parallel" in second and "all 2 ranks hold the same parameters" in second
    assert "plots/" not in second
    assert "rank 1 of 2" not in (two / "train.log").read_text(encoding="utf-8")
    evaluated = [line.split(": ", 1)[1] for line in second.splitlines() if "evaluated in" in line]
    assert [line.split()[1] for line in evaluated] == [f"{float(row[1]):.4f}" for row in metrics(two)]


def test_resumed_on_one(one, two, tmp_path):
    copy = shutil.copytree(two, tmp_path / "run")
    done = run("train", f"resume={copy}/checkpoints/epoch_0001.ckpt", "launch=none", *ONE, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "launch.kind=none (was local)" in done.stderr
    assert_same(copy, one)


def test_a_killed_rank_ends_the_job(data, tmp_path):
    folder = tmp_path / "run"
    words = [*SETTINGS, data, *TWO, WITH_NORM, "epochs=5000", "evaluate_every=0", f"hydra.run.dir={folder}"]
    with started(*words, cwd=tmp_path) as process:
        wait_for(process, "epoch 2/5000  step 1/4")
        ranks = of_job(folder)
        assert ranks.keys() == {"0", "1", "scheduler"}
        os.kill(ranks["1"], signal.SIGKILL)
        killed = time.monotonic()
        _, error = process.communicate(timeout=60)
        assert time.monotonic() - killed < 10
    assert process.returncode == 1
    assert nothing_left(folder)
    assert "rank 1 of 2 failed: it was killed by the signal SIGKILL" in error
    assert f"the end of {folder}/logs/worker_1.log" in error and "epoch 1/5000  step 1/4" in error
    assert f"go on from the last checkpoint with: msrun train resume={folder}" in error


def test_a_port_that_is_taken(data, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = run("train", *SETTINGS, data, *TWO, f"launch.port={port}", cwd=tmp_path)
    assert done.returncode == 4
    assert f"launch.port={port} is taken on 127.0.0.1" in done.stderr and "is free now" in done.stderr


def test_a_master_that_does_not_answer(data, tmp_path):
    there = ("launch=cluster", "launch.node_rank=1", "launch.timeout_s=1")
    done = run("train", *SETTINGS, data, *there, "launch.master=127.0.0.1", "launch.port=1025", cwd=tmp_path)
    assert done.returncode == 4
    assert "no answer from launch.master=127.0.0.1, port 1026 (launch.port + 1), within 1 s" in done.stderr
    done = run("train", *SETTINGS, data, *there, "launch.master=no-such-host.invalid", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no host of that name" in done.stderr


@pytest.mark.slow
def test_resumed_on_two(one, tmp_path):
    copy = shutil.copytree(one, tmp_path / "run")
    done = run("train", f"resume={copy}/checkpoints/epoch_0001.ckpt", *TWO, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same(copy, one)
    done = run("train", f"resume={copy}", "epochs=3", cwd=tmp_path)  # its launch is taken over
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 0 of 2, data_parallel" in done.stdout


@pytest.mark.slow
def test_ranks_agree_with_batch_norm_and_evaluate_like_one(data, tmp_path):
    folder = tmp_path / "run"
    done = run("train", *SETTINGS, data, *TWO, WITH_NORM, "ema=on", f"hydra.run.dir={folder}", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 2 ranks hold the same parameters" in (folder / "logs" / "worker_1.log").read_text(encoding="utf-8")
    steps, evaluations = said_by(1, folder)
    assert (steps, evaluations) == said_by(0, folder)
    assert steps == [f"{loss:.4f}" for loss in losses(folder)] and len(steps) == 8
    assert [text.split()[1] for text in evaluations] == [f"{float(row[1]):.4f}" for row in metrics(folder)]
    checkpoint = f"checkpoint={folder}/checkpoints/last.ckpt"
    values = []
    for name, words in (("one", ()), ("two", ("launch=local", "launch.workers=2"))):
        done = run("eval", checkpoint, *words, "device=cpu", f"hydra.run.dir={tmp_path / name}", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        values.append(return_value(tmp_path / name))
    for value in values:
        value.pop("images_per_s")
    assert values[0] == values[1] and values[0]["images"] == 9
    trained = return_value(folder)
    assert values[0]["top1"] == trained["top1"]


@pytest.mark.slow
def test_synchronized_batch_norm_computes_what_one_process_does(data, tmp_path):
    folders = []
    for name, words in (("one", ONE), ("two", (*TWO, "sync_batch_norm=true"))):
        folders.append(tmp_path / name)
        done = run("train", *SETTINGS, data, *words, WITH_NORM, f"hydra.run.dir={folders[-1]}", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "sync_batch_norm: 1 layers see 2 devices" in done.stdout
    assert_same(folders[1], folders[0])


@pytest.mark.slow
def test_ctrl_c_saves_on_all_ranks(one, data, tmp_path):
    folder = tmp_path / "run"
    words = [*SETTINGS, data, *TWO, "epochs=5000", "evaluate_every=0", f"hydra.run.dir={folder}"]
    with started(*words, cwd=tmp_path) as process:
        wait_for(process, "epoch 2/5000  step 1/4")
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert nothing_left(folder)
    assert f"Go on with: msrun train resume={folder}" in error
    assert (folder / "checkpoints" / "last.ckpt").is_file()


@pytest.mark.slow
def test_bad_data_on_one_rank(data, tmp_path):
    """A picture whose header is right; each picture is read by one rank."""
    root = shutil.copytree(data.partition("=")[2], tmp_path / "data")
    picture = next((root / "train").rglob("7.png"))
    picture.write_bytes(picture.read_bytes()[:900])
    folder = tmp_path / "run"
    words = (f"dataset.root={root}", "dataset.on_bad_sample=error", "dataset.check_images=false")
    done = run("train", *SETTINGS, *words, *TWO, f"hydra.run.dir={folder}", cwd=tmp_path)
    assert done.returncode == 1
    assert f"{picture} is damaged" in done.stderr and " of 2 failed: " in done.stderr
    assert nothing_left(folder)


@pytest.mark.slow
def test_nothing_is_left_when_msrun_itself_is_killed(data, tmp_path):
    folder = tmp_path / "run"
    words = [*SETTINGS, data, *TWO, "epochs=5000", "evaluate_every=0", f"hydra.run.dir={folder}"]
    with started(*words, cwd=tmp_path) as process:
        wait_for(process, "epoch 2/5000  step 1/4")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert nothing_left(folder, seconds=5)


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a core for each rank is needed")
def test_each_rank_has_cores_of_its_own(data, tmp_path):
    folder = tmp_path / "run"
    words = [*SETTINGS, data, *TWO, "epochs=5000", "evaluate_every=0", f"hydra.run.dir={folder}"]
    with started(*words, cwd=tmp_path) as process:
        wait_for(process, "epoch 1/5000  step 1/4")
        found = of_job(folder)
        cores = [os.sched_getaffinity(found[rank]) for rank in ("0", "1")]
    assert cores[0] and cores[1] and not cores[0] & cores[1]
    assert cores[0] | cores[1] <= os.sched_getaffinity(0)
    assert nothing_left(folder, seconds=5)
