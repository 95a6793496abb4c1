from __future__ import annotations

import pytest

from msrun_cli.profiling.steps import MIN_STEPS, Plan, Progress, Spread, StepTime, summarize


def run(plan: Plan, seconds_per_step: float) -> list[str]:
    progress, now, kinds = Progress(plan), 0.0, []
    while progress.kind != "done":
        kinds.append(progress.kind)
        now += seconds_per_step
        progress.step_done(now)
    return kinds


def test_a_plan_is_followed_in_order() -> None:
    kinds = run(Plan(warmup=2, free=3, timed=6, operators=1, seconds=100), 1)
    assert kinds == ["warmup"] * 2 + ["free"] * 3 + ["timed"] * 6 + ["operators"]


def test_slow_steps_end_early_but_not_before_there_are_enough() -> None:
    assert run(Plan(1, 0, 20, 2, 3.0), 0.5) == ["warmup"] + ["timed"] * 6 + ["operators"] * 2
    assert run(Plan(1, 0, 20, 2, 3.0), 50) == ["warmup"] + ["timed"] * MIN_STEPS + ["operators"] * 2


def test_nothing_to_do() -> None:
    assert Progress(Plan(0, 0, 0, 0, 1)).kind == "done"


def test_summary_adds_up() -> None:
    times = [StepTime(10, 80, 5, 5), StepTime(30, 160, 5, 5)]
    summary = summarize(times, 8)
    assert summary.mean_ms == 150 and sum(summary.parts_ms.values()) == 150
    assert summary.images_per_s == pytest.approx(8 / 0.150)
    assert summary.share("wait") == pytest.approx(20 / 150)
    assert summary.work_ms == 125
    assert times[1].divided(2) == StepTime(15, 80, 2.5, 2.5)


def test_spread() -> None:
    assert Spread.of([3.0]) == Spread(3, 3, 3)
    assert Spread.of([float(value) for value in range(11)]) == Spread(5, 1, 9)
