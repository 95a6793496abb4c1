"""The launcher's command line, logs, and how processes that end are told apart."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time

import pytest

from msrun_cli.common.errors import DeviceError
from msrun_cli.runtime import rank_environment, rank_processes
from msrun_cli.runtime.log_follower import LogFollower
from msrun_cli.runtime.rank_processes import Place, RankProcesses, last_lines, launcher_command

CHATTER = "[WARNING] DISTRIBUTED(9920,7f9ed5,python):2026-12-01 [mindspore/x.cc:1] Connect] Failed"
# In place of MindSpore's launcher: starts what it is told to, as that does, and leaves.
FAKE_LAUNCHER = """
import os, subprocess, sys
for rank, code in enumerate(sys.argv[1:]):
    environment = {**os.environ, "MS_ROLE": "MS_WORKER", "RANK_ID": str(rank)}
    subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)
"""
FOREVER = "import time; time.sleep(60)"


def test_command_of_a_host_in_a_cluster(tmp_path):
    place = Place(workers=8, nodes=4, node=2, master="10.0.0.1", port=8118)
    assert list(place.ranks) == list(range(16, 24)) and place.total == 32
    command = launcher_command(place, tmp_path, 600, True, ["-m", "x"])
    assert command[:3] == [sys.executable, "-m", "mindspore.parallel.cluster.run"]
    assert set(command[3:12]) >= {
        "--worker_num=32", "--local_worker_num=8", "--node_rank=2", "--master_addr=10.0.0.1", "--master_port=8118",
        "--join=False", "--cluster_time_out=600", "--bind_core=True",
    }  # fmt: skip
    assert command[-3:] == ["python", "-m", "x"]


@pytest.fixture
def interpreter(tmp_path, monkeypatch):
    """This process believes to run in a folder like /usr/bin, in which `python` is another version."""
    for name in ("python3.10", "python2.7"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python").symlink_to("python2.7")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3.10"))
    return tmp_path


def test_another_python_in_the_same_folder_runs_no_rank(interpreter):
    place = Place(workers=2, nodes=1, node=0, master="127.0.0.1", port=8118)
    with pytest.raises(DeviceError, match=r"neither `python` nor `python3` in .* is .*/python3\.10.* -m venv \.venv"):
        launcher_command(place, interpreter, 600, True, ["-m", "x"])
    (interpreter / "python3").symlink_to("python2.7")
    with pytest.raises(DeviceError):
        launcher_command(place, interpreter, 600, True, ["-m", "x"])
    (interpreter / "python3").unlink()
    (interpreter / "python3").symlink_to("python3.10")
    assert launcher_command(place, interpreter, 600, True, ["-m", "x"])[-3:] == ["python3", "-m", "x"]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start these Python programs as ranks."""
    jobs = []

    def call(*codes: str) -> RankProcesses:
        ranks = RankProcesses(Place(len(codes), 1, 0, "127.0.0.1", 1025), tmp_path / "logs")
        jobs.append(ranks)
        command = [sys.executable, "-c", FAKE_LAUNCHER, *codes]
        monkeypatch.setattr(rank_processes, "launcher_command", lambda *arguments: command)
        ranks.start([], tmp_path, 10, False)
        return ranks

    yield call
    for ranks in jobs:
        ranks.end()


def until(ranks: RankProcesses, done) -> None:
    end = time.monotonic() + 20
    while not done() and time.monotonic() < end:
        time.sleep(0.05)
        ranks.look()
    assert done()


def test_ends_are_told_by_rank(start):
    ranks = start(FOREVER, "import time; time.sleep(1); raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)")
    until(ranks, lambda: len(ranks.ended) == 2)
    assert ranks.ended == {2: -9, 1: 3} and ranks.failed() == 2 and not ranks.finished()
    survivor = ranks.running[0]
    ranks.end()
    assert ranks.ended[0] == -9 and not os.path.exists(f"/proc/{survivor}")


def test_one_that_ends_at_once_is_not_lost(start):
    ranks = start(FOREVER, "raise SystemExit(7)")
    until(ranks, lambda: ranks.failed() is not None)
    assert ranks.ended == {1: 7}


def test_what_ranks_started_themselves_is_ended_too(start):
    child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    ranks = start(child, child)
    until(ranks, ranks.finished)
    assert set(ranks.ended.values()) == {0}
    assert len(list(ranks._processes())) == 2
    ranks.end()
    assert list(ranks._processes()) == []


def test_a_launcher_that_fails_is_quoted(tmp_path, monkeypatch):
    command = [sys.executable, "-c", "raise SystemExit('no such option')"]
    monkeypatch.setattr(rank_processes, "launcher_command", lambda *arguments: command)
    ranks = RankProcesses(Place(2, 1, 0, "127.0.0.1", 1025), tmp_path)
    with pytest.raises(DeviceError, match="ended with code 1: no such option"):
        ranks.start([], tmp_path, 10, False)


def test_variables_of_another_job_do_not_reach_the_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK_TABLE_FILE", "/old")
    monkeypatch.setenv("MS_SCHED_PORT", "1")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    found = RankProcesses(Place(2, 1, 0, "127.0.0.1", 1025), tmp_path)._environment(tmp_path)
    assert "RANK_TABLE_FILE" not in found and "MS_SCHED_PORT" not in found
    assert found["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)
    assert found["PYTHONPATH"].endswith("/mine")
    assert found[rank_environment.RUN_FOLDER] == str(tmp_path)


def test_the_end_of_a_log_is_without_chatter(tmp_path):
    path = tmp_path / "worker_0.log"
    assert "is not there" in last_lines(path, 3)
    path.write_text(f"one\n{CHATTER}\ntwo\n\nthree\n{CHATTER}\n", encoding="utf-8")
    assert last_lines(path, 2) == "two\nthree"
    path.write_text(f"{CHATTER}\n", encoding="utf-8")
    assert last_lines(path, 2) == CHATTER


def test_a_followed_log_is_shown_line_by_line(tmp_path):
    path, out = tmp_path / "worker_0.log", io.StringIO()
    follower = LogFollower(path, hidden="this rank ends", out=out)
    follower.show()
    with path.open("wb") as file:
        for piece in (b"ep", b"och 1\n" + CHATTER.encode(), b"\nthis rank ends\n[a] list\n", "损失".encode()[:4]):
            file.write(piece)
            file.flush()
            follower.show()
        assert out.getvalue() == "epoch 1\n[a] list\n"
        file.write("损失".encode()[4:] + b"\n")
    follower.show()
    assert out.getvalue() == "epoch 1\n[a] list\n损失\n"


def test_a_process_ends_with_its_parent(tmp_path):
    """As each rank does when msrun itself is killed."""
    child = "from msrun_cli.runtime.rank_environment import die_with_parent as d; d(); print('set', flush=True); "
    child += "import time; time.sleep(60)"
    program = f"import os, subprocess, sys; os.environ['MSRUN_PARENT'] = str(os.getpid()); \
subprocess.run([sys.executable, '-c', {child!r}])"
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "set\n"
    parent.kill()
    parent.wait()
    assert parent.stdout.read() == ""  # the end of the child closes the pipe


def test_the_parent_loads_no_mindspore():
    """It waits for hours beside the ranks, whose memory is theirs."""
    code = "import sys, msrun_cli.tasks.launch; print(sorted(sys.modules.keys() & {'mindspore', 'cv2', 'numpy'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
