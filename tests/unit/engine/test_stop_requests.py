"""Ranks stop after the same step, whichever of them got the signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.callbacks.stop_requests import StopRequests


class Run:
    stopped = False

    def request_stop(self) -> None:
        self.stopped = True


def steps_until_stop(stops: list[StopRequests], signalled: int, at: int) -> list[int]:
    """Step after which each of the ranks stops; one of them gets a signal before the end of step `at`."""
    ended = [0] * len(stops)
    for step in range(1, 41):
        if step == at:
            stops[signalled]._on_signal(signal.SIGTERM, None)
        got = max(stop._got for stop in stops)
        for rank, stop in enumerate(stops):
            stop.agree = lambda number, got=got: max(number, got)  # what the ranks' maximum is
            stop.state.step, run = step, Run()
            stop.on_train_step_end(run)
            ended[rank] = ended[rank] or (step if run.stopped else 0)
        if all(ended):
            break
    return ended


def ranks(every: int, max_steps: int | None = None) -> list[StopRequests]:
    return [StopRequests(TrainState(4, 10, 8), max_steps, lambda number: number, every) for _ in range(3)]


def test_all_stop_where_they_ask_one_another():
    stops = ranks(every=4)
    assert steps_until_stop(stops, signalled=2, at=5) == [8, 8, 8]
    assert {stop.state.signal for stop in stops} == {signal.SIGTERM}
    assert {stop.state.stop_reason for stop in stops} == {"signal SIGTERM"}


def test_the_end_of_an_epoch_is_such_a_place():
    assert steps_until_stop(ranks(every=7), signalled=0, at=8) == [10, 10, 10]
    assert steps_until_stop(ranks(every=100), signalled=1, at=1) == [10, 10, 10]


def test_max_steps_needs_no_question():
    assert steps_until_stop(ranks(every=100, max_steps=6), signalled=0, at=99) == [6, 6, 6]


def test_alone_it_stops_after_the_step():
    stop, run = StopRequests(TrainState(4, 10, 8), None), Run()
    stop.state.step = 3
    stop._on_signal(signal.SIGINT, None)
    stop.on_train_step_end(run)
    assert run.stopped and stop.state.stop_reason == "signal SIGINT"


# A step that takes a minute; the first Ctrl-C must not cut it short, the second one must.
LONG_STEP = """
import time
from msrun_cli.runtime.process import prepare_process
prepare_process()
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.callbacks.stop_requests import StopRequests
with StopRequests(TrainState(1, 10, 8), None):
    print("in the step", flush=True)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(60)
    print("finished", flush=True)
"""


def test_a_second_ctrl_c_leaves_at_once():
    process = subprocess.Popen(
        [sys.executable, "-c", LONG_STEP],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "in the step\n"
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        pressed = time.monotonic()
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=30)
        seconds = time.monotonic() - pressed
    finally:
        process.kill()
    assert seconds < 3
    assert "stopping after this step" in error and "KeyboardInterrupt" in error
    assert "finished" not in output and process.returncode != 0
