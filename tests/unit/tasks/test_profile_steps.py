"""Which steps are made on which device, with a train step that needs no compilation."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from omegaconf import OmegaConf

from msrun_cli.builders.training import Training
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.rows import BatchRows
from msrun_cli.runtime.context import Device
from msrun_cli.runtime.run_folder import RunFolder
from msrun_cli.tasks import profile_steps as module


class Samples:
    def blank(self, number: int):
        return np.empty((number, 3), np.float32), np.empty((number, 1), np.float32)

    def write(self, index: int, batch, place: int) -> None:
        batch[0][place], batch[1][place] = index, 1


def batches(first_epoch: int | None = 0) -> Batches:
    rows = BatchRows(Samples(), lambda row: np.arange(4), count=6)
    return Batches(rows, ["images", "targets"], LoaderOptions(1), batch_size=4, first_epoch=first_epoch)


class Step(nn.Cell):
    """As TrainStep gives its results, without weights."""

    made = 0

    def __call__(self, *batch):
        Step.made += 1
        return super().__call__(*batch)

    def construct(self, images, targets):
        loss = images.mean() + targets.mean()
        one = Tensor(1.0, ms.float32)
        return loss, loss.reshape((1,)), one, one, Tensor(0, ms.int32), one


CONFIG: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 4,
    "max_steps": None,
    "weights": None,
    "logger": {"every": 2, "progress": "plain"},
    "overflow": {"max_consecutive": 5},
    "profile": {"what": "both", "steps": 6, "warmup": 2, "seconds": 30, "operators": False, "operator_steps": 3},
}


@pytest.fixture
def profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """profiled(device, what) -> StepProfile"""
    for name in ("build_network", "synchronize", "freeze_parameters"):
        monkeypatch.setattr(module, name, lambda *_: None)
    training = Training(Step(), None, lambda: None, [], ("only",), lambda: None)  # type: ignore[arg-type]
    monkeypatch.setattr(module, "build_training", lambda *_: training)
    task = SimpleNamespace(
        preview=batches,
        train_batches=batches,
        data=SimpleNamespace(class_names=("a",)),
        metric_names=("top1",),
    )
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)

    def run(device: Device, what: str = "both"):
        Step.made = 0
        cfg = OmegaConf.create({**CONFIG, "profile": {**CONFIG["profile"], "what": what}})
        data = batches() if what == "both" else None
        return module.profile_steps(cfg, RunFolder(tmp_path), task, device, data)  # type: ignore[arg-type]

    yield run
    ms.set_context(mode=mode)


def device(target: str, sink: bool = False) -> Device:
    return Device(target, graph=False, sink=sink, sink_size=-1, dvpp=False)


def test_a_synchronous_device(profiled, tmp_path: Path) -> None:
    found = profiled(device("CPU"))
    assert len(found.times) == 6 and len(found.alone) == 6
    assert Step.made == 1 + 1 + 6 + 2 + 6  # the first, warm-up, alone; warm-up, timed
    assert found.free_images_per_s is None and found.sunk == []
    assert found.images_per_s == pytest.approx(found.summary.images_per_s)
    assert found.planned_steps == 18 and found.compile_s is None and found.losses[0] == pytest.approx(2.5)
    assert found.operators is None and found.busy_share is None
    assert set(found.mean_breakdown()) == {"wait", "host", "step", "logging"}
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 1 + 4  # a row per two steps


def test_an_asynchronous_device_that_sinks_its_data(profiled) -> None:
    """The two measurements beside the timed steps; on a CPU, MindSpore feeds sunk batches one by one."""
    found = profiled(device("GPU", sink=True))
    assert found.free_images_per_s > 0 and len(found.times) == 6
    assert len(found.sunk) == 5 and len(found.speeds) == 5
    assert found.images_per_s != found.free_images_per_s and "sunk" in found.notes[0]


def test_a_constant_batch_is_enough(profiled) -> None:
    found = profiled(device("CPU"), what="step")
    assert found.times == found.alone and len(found.times) == 6
    assert Step.made == 1 + 2 + 6
    assert {time.wait for time in found.times} == {0.0}
