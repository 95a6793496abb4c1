"""`msrun train model=yolov5s amp=... loss_scale=... max_steps=20` for every level and loss scale."""

from __future__ import annotations

import pytest
from command import msrun, only_run, return_value


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["none", "fixed", "dynamic"])
@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3"])
def test_level_trains_with_loss_scale(level, scale, tmp_path):
    words = (f"amp={level}", f"loss_scale={scale}", "max_steps=20", "image_size=64", "dataset.val_images=8")
    done = msrun("train", "model=yolov5s", *words, cwd=tmp_path, timeout=560)
    assert done.returncode == 0, done.stdout + done.stderr
    assert return_value(only_run(tmp_path / "outputs" / "train"))["steps"] == 20
