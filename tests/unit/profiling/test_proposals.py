from __future__ import annotations

from dataclasses import replace

import pytest
from test_verdict import STEADY

from msrun_cli.data.stage_times import StageTimes
from msrun_cli.profiling.pipeline import DataProfile
from msrun_cli.profiling.proposals import Settings, advice, propose
from msrun_cli.profiling.steps import Spread
from msrun_cli.profiling.verdict import judge

SETTINGS = Settings(
    device="CPU",
    graph=True,
    sink=False,
    amp_level="O0",
    loss_scale="none",
    batch_size=8,
    train_images=800,
    accumulate=1,
    log_every=10,
    workers=2,
    processes=False,
    prefetch=2,
    cache="none",
    reduced_decoding=True,
    free_mib=4000,
    peak_mib=1000,
)
DATA = DataProfile(
    images_per_s=400,
    batch_ms=Spread(20, 18, 25),
    batches=30,
    workers=2,
    processes=False,
    prefetch=2,
    cores=8,
    by_threads={1: 100, 2: 195, 4: 380, 8: 700},
    stages=StageTimes({"decode": 6.0, "mosaic": 3.0, "boxes, copy, rest": 1.0}, 10.5, 100),
)
WAITING = replace(STEADY, parts={"wait": 60, "call": 40, "device": 0, "logging": 0})
HOST = replace(STEADY, parts={"wait": 2, "call": 90, "device": 0, "logging": 8}, busy_share=0.4)


def names(facts, settings=SETTINGS, data=DATA) -> list[str]:
    return [proposal.name for proposal in propose(judge(facts), facts, settings, data)]


def test_input_bound_gets_more_readers_first() -> None:
    found = propose(judge(WAITING), WAITING, SETTINGS, DATA)
    assert [item.name for item in found] == ["dataset.workers=8", "dataset.prefetch=4", "batch_size=16"]
    assert "700 images/s instead of 195" in found[0].reason


def test_threads_that_wait_for_each_other_become_processes() -> None:
    locked = replace(DATA, by_threads={1: 100, 2: 105, 4: 104, 8: 103})
    found = names(WAITING, data=locked)
    assert found[0] == "dataset.python_multiprocessing=true dataset.workers=8"
    assert "dataset.workers=8" not in found


def test_compute_bound() -> None:
    assert names(STEADY) == ["batch_size=16"]
    ascend = replace(SETTINGS, device="Ascend", sink=True)
    assert names(replace(STEADY, device="Ascend"), ascend) == [
        "amp=O2 loss_scale=dynamic",
        "batch_size=16",
        "device.jit_level=O1",
    ]
    assert (
        names(replace(STEADY, device="Ascend"), replace(ascend, amp_level="O2", loss_scale="dynamic"))[0]
        == "batch_size=16"
    )


def test_readers_that_take_the_cores_of_a_cpu_become_fewer() -> None:
    assert names(replace(STEADY, beside_ms=150, images_per_s=50))[0] == "dataset.workers=1"
    assert names(replace(STEADY, beside_ms=150, images_per_s=90)) == ["batch_size=16"]  # one would be too slow
    assert names(replace(STEADY, beside_ms=150, images_per_s=50, reading_ms=5)) == ["batch_size=16"]  # it is not theirs


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"train_images": 15}, "no data for it"), ({"peak_mib": 3000, "free_mib": 2000}, "no memory for it")],
)
def test_no_larger_batch_than_possible(settings, why) -> None:
    assert names(STEADY, replace(SETTINGS, **settings)) == [], why


def test_host_bound() -> None:
    assert names(HOST) == ["batch_size=16", "logger.every=50"]
    assert names(HOST, replace(SETTINGS, graph=False))[0] == "device.mode=graph"
    found = names(replace(HOST, device="Ascend"), replace(SETTINGS, device="Ascend"))
    assert found == ["device.sink=on", "batch_size=16", "logger.every=50"]


def test_communication_bound() -> None:
    facts = replace(STEADY, communication_share=0.4, device="Ascend")
    assert names(facts, replace(SETTINGS, device="Ascend"))[0] == "batch_size=16"


def test_advice_is_for_what_trials_cannot_show() -> None:
    text = " ".join(advice(judge(WAITING), WAITING, SETTINGS, DATA))
    assert "Decoding is 60%" in text and "dataset.cache=ram" in text and "slowest stage is decode (6.00 ms, 60%" in text
    assert "look at the disk" not in text
    slow_disk = replace(DATA, stages=StageTimes(DATA.stages.ms, 30.0, 100))
    assert "waits 20.0 ms for its file" in " ".join(advice(judge(WAITING), WAITING, SETTINGS, slow_disk))
    compiling = replace(STEADY, compile_s=60, planned_s=60, phases={"forward": 0.4, "backward": 0.3, "update": 0.3})
    text = " ".join(advice(judge(compiling), compiling, SETTINGS, DATA))
    assert "device.jit_level=O0" in text and "accumulate=2" in text
    assert advice(judge(STEADY), STEADY, SETTINGS, DATA) == []


def test_data_profile() -> None:
    assert (DATA.slowest, DATA.best_threads, DATA.waiting_ms) == ("decode", 8, 0.5)
    document = DATA.as_json()
    assert document["stages"][0] == {"name": "decode", "ms": 6.0, "images_per_s": 166.7, "share": 0.6}
    assert document["images_per_s_by_threads"] == {"1": 100, "2": 195, "4": 380, "8": 700}
