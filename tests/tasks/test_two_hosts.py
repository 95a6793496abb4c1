"""Two hosts train one job: network namespaces joined by a veth pair (tests/two_hosts.sh), which need root."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from launched import SETTINGS, losses, metrics, nothing_left, of_job, parameters, run, started, wait_for
from test_classification import write_folders

SCRIPT = Path(__file__).resolve().parents[1] / "two_hosts.sh"
NAME = f"ms{os.getpid() % 100000}h"
CLUSTER = ("batch_size=4", "launch=cluster", "launch.workers=1", "launch.master=10.77.0.1", "launch.timeout_s=60")


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    made = subprocess.run([SCRIPT, "up", NAME], capture_output=True, text=True)
    try:
        if made.returncode:
            pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
        yield
    finally:
        subprocess.run([SCRIPT, "down", NAME], check=True)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> str:
    return f"dataset.root={write_folders(tmp_path_factory.mktemp('data'), train=11, val=3)}"


@contextlib.contextmanager
def pair(folder: Path, *words: str, second: tuple[str, ...] = ()) -> Iterator[list[subprocess.Popen[str]]]:
    """msrun on both hosts, each with its own folder for results; `second`: further words for host 1."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                started(
                    *SETTINGS,
                    *CLUSTER,
                    *words,
                    f"launch.node_rank={node}",
                    f"output_dir={folder}/host{node}",
                    *(second if node else ()),
                    cwd=folder,
                    prefix=("ip", "netns", "exec", f"{NAME}{node}"),
                )  # fmt: skip
            )
            for node in (0, 1)
        ]


def folder_of(folder: Path, node: int) -> Path:
    (found,) = (folder / f"host{node}" / "train").glob("*/*")
    return found


@pytest.mark.slow
def test_two_hosts_compute_what_one_process_does(hosts, data, tmp_path):
    with pair(tmp_path, data) as processes:
        ends = [process.communicate(timeout=180) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    first, second = folder_of(tmp_path, 0), folder_of(tmp_path, 1)
    assert first.name == second.name
    assert {path.name for path in (second / "logs").iterdir()} == {
        *("worker_1.log", "launcher_1.log", "node_1.yaml", "environment_1.json"),
    }
    facts = json.loads((second / "logs" / "environment_1.json").read_text(encoding="utf-8"))
    assert facts["checks"]["mindspore"]["status"] == "pass" and "launch.node_rank=1" in facts["command"]
    # Rank 0 alone writes results; what the compiler leaves is each host's own.
    assert {path.name for path in second.iterdir()} <= {"logs", "compiler"}

    one = tmp_path / "one"
    done = run("train", *SETTINGS, data, "batch_size=8", f"hydra.run.dir={one}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(losses(first), losses(one), rtol=1e-5)
    assert metrics(first) == metrics(one)
    for name, array in parameters(one).items():
        np.testing.assert_allclose(parameters(first)[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["a rank is killed", "the cable is pulled"])
def test_both_hosts_end_when_one_fails(hosts, data, tmp_path, what):
    with pair(tmp_path, data, "epochs=20000", "evaluate_every=0") as processes:
        wait_for(processes[0], "epoch 2/20000  step 1/4")
        first, second = folder_of(tmp_path, 0), folder_of(tmp_path, 1)
        if what == "a rank is killed":
            os.kill(of_job(second)["1"], signal.SIGKILL)
        else:
            subprocess.run([SCRIPT, "cut", NAME], check=True)
        since = time.monotonic()
        errors = [process.communicate(timeout=60)[1] for process in processes]
        seconds = time.monotonic() - since
    assert [process.returncode for process in processes] == [1, 1], errors
    assert nothing_left(first) and nothing_left(second)
    if what == "a rank is killed":
        assert seconds < 10
        assert "rank 1 of 2 failed: it was killed by the signal SIGKILL" in errors[1]
        assert "host 1: rank 1 of 2 failed" in errors[0]
    else:
        assert seconds < 20
        assert "host 1 (10.77.0.2) is gone without a word" in errors[0]
        assert "host 0 (10.77.0.1) is gone without a word" in errors[1]
        subprocess.run([SCRIPT, "down", NAME], check=True)
        subprocess.run([SCRIPT, "up", NAME], check=True)


@pytest.mark.slow
def test_hosts_with_other_settings_are_told_so(hosts, data, tmp_path):
    with pair(tmp_path, data, second=("epochs=3",)) as processes:
        errors = [process.communicate(timeout=60)[1] for process in processes]
    assert [process.returncode for process in processes] == [2, 2]
    assert all("epochs is 2 on host 0 and 3 on host 1" in error for error in errors)
