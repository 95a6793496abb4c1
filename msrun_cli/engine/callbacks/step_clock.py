"""Times the parts of each training step, from the first and the last place in the list of callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mindspore.train import Callback

from msrun_cli.engine.callbacks.state import as_array
from msrun_cli.profiling.memory import peak_rss_mib
from msrun_cli.profiling.session import ProfilerSession
from msrun_cli.profiling.steps import Plan, Progress, StepTime


class StepClock:
    """`first` and `last` go around the other callbacks of Model.train.

    plan: which steps are timed and how; the training is ended after its last one
    session: MindSpore's profiler for the plan's operator steps
    times: of the timed steps; free_s: seconds of the free steps together; profiled: times of the operator steps;
    losses: of the steps, but most of the free ones; peak_mib: memory of the process before MindSpore's profiler
    """

    def __init__(self, plan: Plan, session: ProfilerSession | None, clock: Callable[[], float] = time.perf_counter):
        self.progress = Progress(plan)
        self.session = session
        self.clock = clock
        self.times: list[StepTime] = []
        self.profiled: list[StepTime] = []
        self.losses: list[float] = []
        self.free_s, self.free_steps = 0.0, 0
        self.peak_mib: float | None = None
        self.first: Callback = _First(self)
        self.last: Callback = _Last(self)
        self._end = self._begin = self._called = self._synced = self._free_since = clock()

    def train_begins(self) -> None:
        self._end = self.clock()

    def step_begins(self) -> None:
        self._begin = self.clock()

    def step_ends(self, outputs: Any) -> None:
        """The call of the train step came back."""
        self._called = self.clock()
        # Free steps do not wait for an asynchronous device, but the last of them does.
        if self.progress.kind != "free" or self.progress.left["free"] == 1:
            self.losses.append(float(as_array(outputs[0])))
        self._synced = self.clock()

    def callbacks_end(self) -> bool:
        """The other callbacks are done. Gives whether the plan is, too."""
        now, kind = self.clock(), self.progress.kind
        measured = StepTime(
            wait=1000 * (self._begin - self._end),
            call=1000 * (self._called - self._begin),
            device=1000 * (self._synced - self._called),
            logging=1000 * (now - self._synced),
        )
        if kind == "timed":
            self.times.append(measured)
        elif kind == "operators":
            self.profiled.append(measured)
        elif kind == "free":
            self.free_steps += 1
            self.free_s = now - self._free_since
        following = self.progress.step_done(now)
        if following != kind:
            self._change(kind, following)
        self._end = self.clock()
        return following == "done"

    def close(self) -> None:
        """After an interruption, too."""
        if self.session is not None:
            self.session.stop()

    def _change(self, kind: str, following: str) -> None:
        if self.session is not None and kind == "operators":
            self.session.stop()
        if following in ("operators", "done") and self.peak_mib is None:
            self.peak_mib = peak_rss_mib()
        if self.session is not None and following == "operators":
            self.session.start()
        if following == "free":
            self._free_since = self.clock()


class _First(Callback):
    def __init__(self, clock: StepClock) -> None:
        super().__init__()
        self.step_clock = clock

    def on_train_begin(self, run_context) -> None:
        self.step_clock.train_begins()

    def on_train_step_begin(self, run_context) -> None:
        self.step_clock.step_begins()

    def on_train_step_end(self, run_context) -> None:
        self.step_clock.step_ends(run_context.original_args().net_outputs)


class _Last(Callback):
    def __init__(self, clock: StepClock) -> None:
        super().__init__()
        self.step_clock = clock

    def on_train_step_end(self, run_context) -> None:
        if self.step_clock.callbacks_end():
            run_context.request_stop()
