"""Times of training steps by our own clocks, and what they add up to. All times are milliseconds of wall clock."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepTime:
    """One step of a training.

    wait: from the end of the step before until its batch is there
    call: the train step's call until it comes back to Python; an asynchronous device still works then
    device: from there until the loss is on the host
    logging: the other callbacks of the step
    """

    wait: float
    call: float
    device: float
    logging: float

    @property
    def total(self) -> float:
        return self.wait + self.call + self.device + self.logging

    @property
    def work(self) -> float:
        """The train step itself: call and device."""
        return self.call + self.device

    def divided(self, number: int) -> StepTime:
        """The mean of `number` steps that were timed as one."""
        return StepTime(self.wait / number, self.call / number, self.device / number, self.logging / number)


PARTS = ("wait", "call", "device", "logging")


@dataclass(frozen=True)
class Spread:
    """Of single measurements: the middle one, and those that a tenth of them are below and above."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """values: at least one."""
        ordered = sorted(values)
        if len(ordered) == 1:
            return cls(ordered[0], ordered[0], ordered[0])
        tenths = statistics.quantiles(ordered, n=10, method="inclusive")
        return cls(statistics.median(ordered), tenths[0], tenths[-1])

    def as_json(self) -> dict[str, float]:
        return {"median": round(self.median, 3), "p10": round(self.p10, 3), "p90": round(self.p90, 3)}


@dataclass(frozen=True)
class StepSummary:
    """Of `count` timed steps. parts_ms: means, which add up to mean_ms; shares are of them."""

    count: int
    step_ms: Spread
    mean_ms: float
    parts_ms: dict[str, float]
    images_per_s: float

    @property
    def work_ms(self) -> float:
        return self.parts_ms["call"] + self.parts_ms["device"]

    def share(self, part: str) -> float:
        return self.parts_ms[part] / self.mean_ms if self.mean_ms else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "step_ms": self.step_ms.as_json(),
            "mean_ms": round(self.mean_ms, 3),
            "parts_ms": {name: round(value, 3) for name, value in self.parts_ms.items()},
            "images_per_s": round(self.images_per_s, 3),
        }


def summarize(times: Sequence[StepTime], images_per_step: int) -> StepSummary:
    """times: at least one."""
    mean = statistics.fmean(time.total for time in times)
    return StepSummary(
        count=len(times),
        step_ms=Spread.of([time.total for time in times]),
        mean_ms=mean,
        parts_ms={part: statistics.fmean(getattr(time, part) for time in times) for part in PARTS},
        images_per_s=1000 * images_per_step / mean if mean else 0.0,
    )


@dataclass(frozen=True)
class Plan:
    """How many steps are made for what, in this order: the first steps do not count, `free` ones are timed as a whole
    without waiting for the device after each, `timed` ones one by one, the last ones under MindSpore's profiler.

    An asynchronous device needs `free` steps to show its throughput; elsewhere timed steps show it too.
    seconds: after which timed steps end, if there are MIN_STEPS
    """

    warmup: int
    free: int
    timed: int
    operators: int
    seconds: float

    @property
    def steps(self) -> int:
        return self.warmup + self.free + self.timed + self.operators


MIN_STEPS = 5


class Progress:
    """Where a run of steps is in its plan. `step_done` is told of each step and says what comes next.

    kind: "warmup", "free", "timed", "operators" or "done"
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.left = {"warmup": plan.warmup, "free": plan.free, "timed": plan.timed, "operators": plan.operators}
        self.kind = self._next()
        self._since: float | None = None

    def step_done(self, now: float) -> str:
        """now: seconds of a clock. Gives the kind of the next step."""
        self.left[self.kind] -= 1
        if self.kind in ("free", "timed"):
            done = getattr(self.plan, self.kind) - self.left[self.kind]
            if self._since is None:
                self._since = now
            if done >= MIN_STEPS and now - self._since >= self.plan.seconds:
                self.left[self.kind] = 0
        following = self._next()
        if following != self.kind:
            self._since = now
        self.kind = following
        return following

    def _next(self) -> str:
        return next((kind for kind, left in self.left.items() if left > 0), "done")
