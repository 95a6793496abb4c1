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


def check(guard: Guard, state: TrainState, overflows: list[int], scales: list[float], last: object) -> None:
    count = len(overflows)
    zeros = np.zeros((count, 1), np.float32)
    guard.check(state, zeros, np.array(overflows), zeros[:, 0], np.array(scales), last)


def test_the_step_is_named_where_it_was_in_its_interval():
    asked = []

    def diagnose(batch, step, scale):
        asked.append((batch, step, scale))
        return "Looked."

    with pytest.raises(TrainingError, match=r"at step 18: the last 2 steps .* loss scale 4\).* Its batch is gone"):
        check(Guard(2, ("error",), diagnose), TrainState(1, 90, 8, step=20), [0, 1, 2, 2, 2], [9, 8, 4, 2, 2], "last")
    assert asked == []
    with pytest.raises(TrainingError, match=r"at step 20: the last 3 steps .* Looked\."):
        check(Guard(3, ("error",), diagnose), TrainState(1, 90, 8, step=20), [0, 1, 2, 3], [9, 8, 4, 2], "last")
    # the streak began in the interval before, and goes on behind the step that ends the training
    state = TrainState(1, 90, 8, step=20, skipped=1, skipped_in_a_row=1)
    with pytest.raises(TrainingError, match=r"at step 19: the last 2 steps .* Looked\."):
        check(Guard(2, ("error",), diagnose), state, [2, 3], [8, 4], "last")
    assert asked == [("last", 20, 2.0), ("last", 20, 4.0)]
