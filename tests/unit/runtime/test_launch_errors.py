"""What is said when a rank fails, from what it left behind."""

from __future__ import annotations

import json
import signal

import pytest

from msrun_cli.common.errors import Interrupted, LaunchError
from msrun_cli.runtime.rank_environment import failure_file
from msrun_cli.runtime.rank_processes import Place, RankProcesses
from msrun_cli.runtime.run_folder import RunFolder
from msrun_cli.tasks import launch


@pytest.fixture
def run(tmp_path) -> RunFolder:
    run = RunFolder(tmp_path)
    run.logs.mkdir()
    return run


def ranks(run: RunFolder, **ended: int) -> RankProcesses:
    processes = RankProcesses(Place(2, 1, 0, "127.0.0.1", 1025), run.logs)
    processes.ended = {int(name.removeprefix("r")): code for name, code in ended.items()}
    return processes


def leave(run: RunFolder, rank: int, code: int, text: str) -> None:
    failure_file(run.logs, rank).write_text(json.dumps({"code": code, "text": text}))
    (run.logs / f"worker_{rank}.log").write_text(f"epoch 1\n{text}\n", encoding="utf-8")


def test_the_first_that_failed_is_named_with_its_words(run, capsys):
    leave(run, 1, 3, "图 7.png is damaged.")
    leave(run, 0, 1, "lost the other rank.")
    error = launch._error(ranks(run, r1=3, r0=1), launch._Signals(), run)
    assert isinstance(error, LaunchError) and error.exit_code == 1
    assert str(error).startswith("rank 1 of 2 failed: 图 7.png is damaged. The other ranks were ended.")
    assert "resume" not in str(error)  # nothing was saved
    assert "图 7.png is damaged.\n---" in capsys.readouterr().err


def test_known_texts_of_its_log_are_explained(run, capsys):
    leave(run, 0, 1, "RuntimeError: it did not work.")
    log = run.logs / "worker_0.log"
    log.write_text(
        "[ERROR] DEVICE(1,7f,python): Malloc device memory failed\nEL0004: out of memory\n" + log.read_text()
    )
    launch._error(ranks(run, r0=1), launch._Signals(), run)
    said = capsys.readouterr().err
    assert "known error: " in said and "cause:" in said and "remedy:" in said


def test_one_that_said_nothing(run):
    (run.logs / "worker_1.log").touch()
    assert "ended with code 7 without a word" in str(launch._error(ranks(run, r1=7), launch._Signals(), run))
    error = launch._error(ranks(run, r1=-signal.SIGSEGV), launch._Signals(), run)
    assert "killed by the signal SIGSEGV" in str(error) and "memory" not in str(error)
    assert "A library crashed: msrun check-env looks" in str(error)


def test_ranks_that_were_stopped_are_no_failure(run):
    for rank in (0, 1):
        leave(run, rank, 143, "stopped at step 4; saved last.ckpt")
    error = launch._error(ranks(run, r1=143, r0=143), launch._Signals(), run)  # on another host, for instance
    assert isinstance(error, Interrupted) and error.saved and error.exit_code == 143
    assert str(error) == "stopped at step 4; saved last.ckpt"


def test_an_interrupt_before_anything_could_be_saved(run):
    signals = launch._Signals()
    signals._on_signal(signal.SIGINT, None)
    error = launch._error(ranks(run), signals, run)
    assert isinstance(error, Interrupted) and not error.saved and error.exit_code == 130


def test_a_scheduler_that_ended(run, capsys):
    (run.logs / "scheduler.log").write_text("Address already in use\n")
    processes = ranks(run)
    processes.scheduler_code = 1
    assert "set another launch.port" in str(launch._error(processes, launch._Signals(), run))
    assert "Address already in use" in capsys.readouterr().err
