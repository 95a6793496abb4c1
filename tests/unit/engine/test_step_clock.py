"""The clock around a training's callbacks, driven as Model.train drives it, with a clock of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from msrun_cli.engine.callbacks.step_clock import StepClock
from msrun_cli.profiling.steps import Plan


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Loss:
    """Reading it waits for the device."""

    def __init__(self, time: Time, seconds: float) -> None:
        self.time, self.seconds, self.read = time, seconds, False

    def asnumpy(self) -> np.ndarray:
        self.time.now += self.seconds
        self.read = True
        return np.array(0.5)


class Session:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")


class Context:
    stopped = False

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def original_args(self) -> Any:
        return SimpleNamespace(net_outputs=(self.loss, None))

    def request_stop(self) -> None:
        self.stopped = True


def train(plan: Plan, session: Session | None = None) -> tuple[StepClock, list[Loss], bool]:
    """Each step: 20 ms of waiting, 30 in the call, 40 until the device is done, 10 of other callbacks."""
    time = Time()
    clock = StepClock(plan, session, time)  # type: ignore[arg-type]
    losses, stopped = [], False
    clock.first.on_train_begin(None)
    for _ in range(100):
        time.now += 0.02
        loss = Loss(time, 0.04)
        losses.append(loss)
        context = Context(loss)
        clock.first.on_train_step_begin(context)
        time.now += 0.03
        clock.first.on_train_step_end(context)
        time.now += 0.01
        clock.last.on_train_step_end(context)
        if context.stopped:
            stopped = True
            break
    return clock, losses, stopped


def test_parts_of_a_step() -> None:
    clock, losses, stopped = train(Plan(warmup=2, free=0, timed=5, operators=0, seconds=9))
    assert stopped and len(losses) == 7 and len(clock.times) == 5
    for measured in clock.times:
        assert (measured.wait, measured.call) == (pytest.approx(20), pytest.approx(30))
        assert (measured.device, measured.logging) == (pytest.approx(40), pytest.approx(10))
    assert clock.losses == [0.5] * 7 and clock.peak_mib > 0


def test_free_steps_do_not_wait_for_the_device_but_the_last_does() -> None:
    clock, losses, _ = train(Plan(warmup=1, free=6, timed=5, operators=0, seconds=9))
    assert [loss.read for loss in losses] == [True, *[False] * 5, True, *[True] * 5]
    assert clock.free_steps == 6 and clock.free_s == pytest.approx(6 * 0.06 + 0.04)


def test_the_profiler_runs_around_its_steps_only() -> None:
    session = Session()
    clock, losses, _ = train(Plan(warmup=1, free=0, timed=5, operators=3, seconds=9), session)
    assert session.calls == ["start", "stop"]
    assert (len(clock.times), len(clock.profiled), len(losses)) == (5, 3, 9)
    clock.close()
    assert session.calls[-1] == "stop"  # which does nothing a second time, and ends an interrupted one
