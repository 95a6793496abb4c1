from __future__ import annotations

import math
from types import SimpleNamespace

from msrun_cli.builders.profile import build_plan, build_sunk_plan
from msrun_cli.profiling.steps import Progress
from msrun_cli.runtime.context import Device
from msrun_cli.runtime.ranks import Ranks

WANTED = SimpleNamespace(what="both", steps=20, warmup=2, operators=True, operator_steps=3, seconds=12.0)
CFG = SimpleNamespace(profile=WANTED)


def device(count: int, target: str = "CPU") -> Device:
    return Device(target, graph=True, sink=False, sink_size=-1, dvpp=False, ranks=Ranks(0, count))


def steps_made(plan, seconds_per_step: float) -> int:
    progress, made = Progress(plan), 0
    while progress.kind != "done":
        made += 1
        progress.step_done(made * seconds_per_step)
    return made


def test_one_process_ends_by_its_clock() -> None:
    plan = build_plan(CFG, device(1), constant=False)
    assert steps_made(plan, 4.0) < steps_made(plan, 0.01) == plan.steps == 25


def test_ranks_make_the_same_number_of_steps_at_any_speed() -> None:
    """Each step waits for all ranks: one that ended by its own clock would leave the others waiting."""
    plans = [
        build_plan(CFG, device(2), constant=False),
        build_plan(CFG, device(2), constant=True),
        build_plan(CFG, device(2, "Ascend"), constant=False),
        build_sunk_plan(CFG, device(2, "Ascend"), 10),
    ]
    for plan in plans:
        assert math.isinf(plan.seconds)
        assert steps_made(plan, 0.001) == steps_made(plan, 100.0) == plan.steps
