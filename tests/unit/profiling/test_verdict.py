"""Each verdict from constructed timings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from msrun_cli.profiling.verdict import Facts, judge

STEADY = Facts(
    parts={"wait": 1, "call": 95, "device": 0, "logging": 4},
    images_per_s=80,
    batch_size=8,
    device="CPU",
    busy_share=0.95,
    phases={"forward": 0.4, "backward": 0.5, "update": 0.1},
    alone_ms=94,
    beside_ms=95,
    compile_s=20,
    planned_s=1000,
    data_images_per_s=400,
)


@pytest.mark.parametrize(
    ("changes", "bounds", "words"),
    [
        ({}, ["compute"], ["computes for 90 of the 100 ms", "forward 40%", "no hindrance", "5.0 times"]),
        (
            {"parts": {"wait": 60, "call": 40, "device": 0, "logging": 0}, "data_images_per_s": 81},
            ["input"],
            ["waits 60 of its 100 ms (60%)", "gives 81 images/s", "could take 200"],
        ),
        (
            {"parts": {"wait": 2, "call": 90, "device": 0, "logging": 8}, "busy_share": 0.4},
            ["host"],
            ["Host-bound: 62%", "54 ms to launch", "8 ms for logging"],
        ),
        ({"communication_share": 0.3, "device": "Ascend"}, ["communication"], ["30 of the 100 ms of a step (30%)"]),
        (
            {"compile_s": 60, "planned_s": 60},
            ["compile", "compute"],
            ["compiling takes 60 s", "60 s at this speed (50%"],
        ),
        (
            {
                "parts": {"wait": 30, "call": 70, "device": 0, "logging": 0},
                "busy_share": 0.5,
                "data_images_per_s": None,
            },
            ["host", "input"],  # the worst first
            ["Host-bound: 35%", "waits 30 of its 100 ms (30%) for its batch."],
        ),
        (
            {"beside_ms": 141},
            ["compute"],
            ["141 ms beside the data readers, 94 ms alone (x1.50): they share its cores"],
        ),
        ({"beside_ms": 141, "reading_ms": 30}, ["compute"], ["x1.50): they share its cores"]),
        (
            {"beside_ms": 141, "reading_ms": 10},
            ["compute"],
            ["reading a batch is only 10 ms of work: something else keeps this machine busy"],
        ),
        ({"busy_share": None, "phases": {}}, ["compute"], ["95 of the 100 ms", "the host's work in the step included"]),
    ],
)
def test_verdicts(changes, bounds, words) -> None:
    verdict = judge(replace(STEADY, **changes))
    assert verdict.bounds == bounds
    text = " ".join(verdict.sentences)
    for word in words:
        assert word in text
    assert sum(verdict.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(("wait", "bound"), [(14.9, "compute"), (15.1, "input")])
def test_the_threshold_of_waiting(wait: float, bound: str) -> None:
    facts = replace(STEADY, parts={"wait": wait, "call": 100 - wait, "device": 0, "logging": 0}, busy_share=1)
    assert judge(facts).main == bound


def test_idle_time() -> None:
    assert STEADY.idle_share == pytest.approx(1 - 0.95 * 95 / 100)
    assert replace(STEADY, busy_share=None).idle_share == pytest.approx(0.05)  # at least
    assert replace(STEADY, compile_s=None).compile_share is None


def test_a_step_without_time_is_judged_all_the_same() -> None:
    facts = Facts({"wait": 0, "call": 0, "device": 0, "logging": 0}, 0.0, 8)
    assert judge(facts).bounds == ["compute"] and facts.idle_share == 0
