"""Where a resumed training goes on, what it refuses, and its metrics file."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from msrun_cli.common.errors import CheckpointError, ConfigError
from msrun_cli.engine.callbacks.metrics_file import MetricsFile
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.checkpoint import Checkpoint
from msrun_cli.engine.resume import go_on

FACTS = {"data": "abc", "images": 100, "classes": ["a", "b"]}


def checkpoint(step: int, steps_per_epoch: int = 10, **changes) -> Checkpoint:
    state = TrainState(5, steps_per_epoch, 4)
    state.step, state.evaluated_step = step, step
    state.ranking, state.best = [(0.5, 1)], 0.5
    outputs = (np.float32(0.1), np.array([0.1, 0.7], np.float32), np.float32(3), np.float32(1), 2, np.float32(1e-3))
    state.unlogged = [tuple(np.asarray(value) for value in outputs)]
    saved = json.loads(json.dumps({**state.saved(), **FACTS, **changes}))
    return Checkpoint(Path("last.ckpt"), {}, saved)


def test_middle_of_an_epoch():
    state = TrainState(5, 10, 4)
    assert go_on(checkpoint(23), state, FACTS) == (2, 3)
    assert (state.step, state.epoch, state.best, state.ranking) == (23, 3, 0.5, [(0.5, 1)])
    loss, terms, *_, overflows, _ = state.unlogged[0]
    assert loss.dtype == np.float32 and loss == np.float32(0.1)  # every bit of it
    assert (terms == np.array([0.1, 0.7], np.float32)).all() and overflows.dtype == np.int32


def test_other_batch_size_at_the_end_of_an_epoch():
    state = TrainState(5, 20, 2)
    assert go_on(checkpoint(30), state, FACTS) == (3, 0)
    assert (state.step, state.evaluated_step, state.epoch) == (60, 60, 3)


def test_other_batch_size_in_the_middle():
    with pytest.raises(ConfigError, match="step 3 of 10 of epoch 3, but an epoch has 20 steps now"):
        go_on(checkpoint(23), TrainState(5, 20, 2), FACTS)


def test_other_number_of_devices_in_the_middle():
    """Two devices with two images each stand where one with four does; as many steps of other batches do not."""
    assert go_on(checkpoint(23, images_per_step=4), TrainState(5, 10, 4), FACTS) == (2, 3)
    with pytest.raises(ConfigError, match="had 4 images on all devices together; now they have 8"):
        go_on(checkpoint(23), TrainState(5, 10, 8), FACTS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": ["a", "c"]}, "2 classes, the dataset has 2: 'c' is now 'b'"),
        ({"classes": ["a"]}, "1 classes, the dataset has 2"),
        ({"data": "abd", "images": 90}, "90 training images then, 100 now"),
    ],
)
def test_other_data(changes, words):
    with pytest.raises(CheckpointError, match=words):
        go_on(checkpoint(20, **changes), TrainState(5, 10, 4), FACTS)


def test_metrics_behind_the_checkpoint_are_removed(tmp_path):
    path = tmp_path / "metrics.csv"
    first = MetricsFile(path, ("box",), ("map50",))
    for step in (5, 10, 15):
        first.write({"kind": "step", "epoch": 1, "step": step, "loss": 0.5, "box": 0.5})
    first.close()
    with path.open("a") as file:
        file.write("step,2,2")  # killed in the middle of a line
    again = MetricsFile(path, ("box",), ("map50",), step=10)
    again.write({"kind": "step", "epoch": 2, "step": 15, "loss": 0.25, "box": 0.25})
    again.close()
    with path.open(newline="") as file:
        assert [(row["step"], row["loss"]) for row in csv.DictReader(file)] == [
            ("5", "0.5"),
            ("10", "0.5"),
            ("15", "0.25"),
        ]
    lines = path.with_suffix(".jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 10, 15]


def test_a_full_disk_is_said_once_and_closing_does_not_fail(tmp_path, caplog):
    metrics = MetricsFile(tmp_path / "metrics.csv", ("box",), ("map50",))
    metrics._csv.close()
    metrics._csv = open("/dev/full", "w")  # noqa: SIM115
    metrics._writer = csv.DictWriter(metrics._csv, metrics.columns)
    for step in (5, 10):
        metrics.write({"kind": "step", "epoch": 1, "step": step, "loss": 0.5, "box": 0.5})
    metrics.close()
    assert [record.message for record in caplog.records] == [
        "/dev/full cannot be written (No space left on device): training goes on without it."
    ]
