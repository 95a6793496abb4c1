"""A training whose gradients are not finite ends with the layer's name and the batch."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor
from test_train_step import batch, make_step, run

from msrun_cli.common.errors import TrainingError
from msrun_cli.engine.callbacks.guard import Guard
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.diagnosis import BATCH_FILE, Diagnosis


def guarded(step, network, folder, images, targets, steps: int):
    """Run the steps and let the guard look at them, as the recorder does."""
    diagnose = Diagnosis(step, network.trainable_params(), folder, lambda number: [f"图 {number}.jpg"])
    state = TrainState(1, 10, 8, step=steps)
    columns = [np.stack(column) for column in zip(*run(step, images, targets, steps), strict=True)]
    last = (Tensor(images), Tensor(targets))
    Guard(3, ("error",), diagnose).check(state, columns[1], columns[4], columns[2], columns[3], last)
    return state


def test_layer_and_batch(tmp_path):
    step, network, _ = make_step(mode=ms.PYNATIVE_MODE)
    images, targets = batch()
    targets[0, 0] = np.nan
    with pytest.raises(TrainingError) as error:
        guarded(step, network, tmp_path, images, targets, 3)
    text = str(error.value)
    assert "the last 3 steps were skipped" in text and "error nan" in text and "The loss itself is not finite" in text
    assert "first bad one on this way is dense.bias" in text and "图 3.jpg" in text
    with np.load(tmp_path / BATCH_FILE, allow_pickle=False) as saved:
        np.testing.assert_array_equal(saved["input_0"], images)
        np.testing.assert_array_equal(saved["input_1"], targets)
        assert saved["files"].tolist() == ["图 3.jpg"]


def test_fewer_in_a_row_are_no_reason_to_stop(tmp_path):
    step, network, _ = make_step(mode=ms.PYNATIVE_MODE)
    images, targets = batch()
    state = guarded(step, network, tmp_path, images, np.full_like(targets, np.inf), 2)
    assert (state.skipped, state.skipped_in_a_row) == (2, 2)
    assert not (tmp_path / BATCH_FILE).exists()
