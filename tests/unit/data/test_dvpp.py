"""device.dvpp: what goes to an Ascend's image unit, and what is said where nothing does."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from class_folders import write_class_folders
from coco_folders import small_coco
from mindspore.dataset import vision

from msrun_cli.data.coco import read_coco
from msrun_cli.data.imagefolder import read_imagefolder
from msrun_cli.data.pipeline import LoaderOptions
from msrun_cli.models.normalize import MEAN, STD
from msrun_cli.runtime.context import _remarks
from msrun_cli.transforms.chain import Chain
from msrun_cli.transforms.classification import CenterCrop, RandomFlip, RandomResizedCrop, Resize
from msrun_cli.transforms.letterbox import Letterbox
from msrun_cli.vision.classification import Classification
from msrun_cli.vision.detection import Detection

OPTIONS = {"image_size": 32, "batch_size": 2, "seed": 0, "loader": LoaderOptions(1)}
PLACEABLE = ("Decode", "Resize", "Crop", "ResizedCrop")


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """Collects (operator, device); the operators themselves go on running on the CPU."""
    found = set()

    def device(self, target):
        found.add((type(self).__name__, target))
        return self

    for name in PLACEABLE:
        monkeypatch.setattr(getattr(vision, name), "device", device)
    return found


def classification(root: Path, dvpp: bool) -> Classification:
    data = read_imagefolder(str(write_class_folders(root, train=1, val=1)), mean=MEAN, std=STD)
    train = Chain({"crop": RandomResizedCrop(), "flip": RandomFlip()})
    return Classification(data, train, Chain({"resize": Resize(), "crop": CenterCrop()}), dvpp=dvpp, **OPTIONS)


def first_batch(batches) -> dict[str, np.ndarray]:
    return next(batches.create_dict_iterator(num_epochs=1, output_numpy=True))


@pytest.mark.parametrize("name", ["CPU", "GPU"])
def test_another_device_says_one_line(name):
    (line,) = _remarks(name, True, None, False, dvpp=True, sink="auto", amp_level="O0")
    assert "device.dvpp=true has no effect" in line and name in line and "CPU decodes and resizes" in line
    assert _remarks(name, True, None, False, dvpp=False, sink="auto", amp_level="O0") == []
    assert _remarks("Ascend", True, None, False, dvpp=True, sink="auto", amp_level="O0") == []


@pytest.mark.parametrize("dvpp", [False, True])
def test_detection_says_that_the_cpu_decodes(dvpp, tmp_path, caplog):
    chain = Chain({"letterbox": Letterbox()})
    data = read_coco(str(small_coco(tmp_path, count=4)), label_cache=False)
    with caplog.at_level(logging.INFO, "msrun"):
        Detection(data, chain, chain, dvpp=dvpp, **OPTIONS)
    lines = [line.getMessage() for line in caplog.records]
    assert len(lines) == dvpp
    assert not dvpp or ("device.dvpp=true" in lines[0] and "decoded and transformed on the CPU" in lines[0])


def test_classification_puts_decoding_and_resizing_there(tmp_path, caplog, placed):
    task = classification(tmp_path, dvpp=True)
    assert first_batch(task.preview())["images"].shape == (2, 32, 32, 3)
    assert placed == {("Decode", "Ascend"), ("ResizedCrop", "Ascend")}
    placed.clear()
    first_batch(task.eval_batches(task.data.val))
    assert placed == {("Decode", "Ascend"), ("Resize", "Ascend"), ("Crop", "Ascend")}
    assert not caplog.records


def test_nothing_goes_there_unasked(tmp_path, placed):
    task = classification(tmp_path, dvpp=False)
    first_batch(task.preview())
    first_batch(task.eval_batches(task.data.val))
    assert placed == set()


def test_the_installed_operators_have_it():
    """An operator without a place to run on would fail on an Ascend only."""
    assert [name for name in PLACEABLE if not hasattr(getattr(vision, name), "device")] == []
