"""Detection on two processes: the same losses and parameters as on one, and the same boxes to the last digit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import return_value
from launched import losses, parameters, run, said_by

# Frozen BatchNorm layers normalise by their running statistics, so a batch may be shared out without a difference.
SETTINGS = (
    "model=yolov5n", "image_size=64", "dataset.train_images=16", "dataset.val_images=7", "dataset.workers=1",
    "device=cpu", "freeze=['*.bn.*']", "ema=off", "optimizer.lr=0.01", "schedule.warmup_epochs=0", "epochs=2",
    "logger.every=1", "evaluate_every=0",
)  # fmt: skip
TWO = ("launch=local", "launch.workers=2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Trained with 1 x 8 and 2 x 4 images."""
    root = tmp_path_factory.mktemp("detection 检测")
    for name, words in (("one", ("batch_size=8",)), ("two", ("batch_size=4", *TWO))):
        done = run("train", *SETTINGS, *words, f"hydra.run.dir='{root / name}'", cwd=root, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
    return {name: root / name for name in ("one", "two")}


@pytest.mark.slow
def test_two_ranks_train_a_detector_as_one_does(runs):
    one, two = losses(runs["one"]), losses(runs["two"])
    assert len(one) == 4 and len(set(one)) == 4
    np.testing.assert_allclose(two, one, rtol=1e-5)
    assert said_by(1, runs["two"])[0] == [f"{loss:.4f}" for loss in two]
    wanted, found = parameters(runs["one"]), parameters(runs["two"])
    assert found.keys() == wanted.keys()
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_an_odd_number_of_pictures_gives_the_boxes_of_one_process(runs, tmp_path):
    checkpoint = f"checkpoint='{runs['two']}/checkpoints/last.ckpt'"
    boxes, values = [], []
    for name, words in (("one", ("launch=none",)), ("two", TWO)):
        done = run("eval", checkpoint, *words, "device=cpu", f"hydra.run.dir={tmp_path / name}", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        boxes.append(json.loads((tmp_path / name / "detections.json").read_text(encoding="utf-8")))
        values.append(return_value(tmp_path / name))
        values[-1].pop("images_per_s")
    assert {box["image_id"] for box in boxes[0]} == set(range(7)) and len(boxes[0]) > 50
    assert boxes[0] == boxes[1]
    assert values[0] == values[1] and values[0]["images"] == 7
