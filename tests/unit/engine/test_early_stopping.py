"""When a training ends for lack of progress, what decides, and that a resumed run ends at the same place."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from msrun_cli.engine.callbacks.checkpoints import CheckpointSaver, KeepPolicy
from msrun_cli.engine.callbacks.early_stopping import EarlyStopping, out_of_patience
from msrun_cli.engine.callbacks.evaluation import EpochEvaluation
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.checkpoint import Checkpoint, CheckpointWriter
from msrun_cli.engine.resume import go_on

STEPS = 4  # an epoch
FACTS = {"data": "abc", "images": 8, "classes": ["a"]}


class Context:
    """What MindSpore gives to callbacks."""

    stopped = False

    def request_stop(self) -> None:
        self.stopped = True


def new_state(save_best_on: str = "map50", epochs: int = 20) -> TrainState:
    return TrainState(epochs, STEPS, 2, save_best_on)


def epochs_until_stop(state, values, patience, min_delta=0.0, losses=None, first=1) -> int | None:
    """The epoch after which the training stops, with one value (None = no evaluation) per epoch."""
    evaluation = EpochEvaluation(state, lambda progress: SimpleNamespace(metrics={"map50": now}), 1, [])
    stopping = EarlyStopping(state, evaluation, patience, min_delta)
    for epoch, now in enumerate(values, start=1):
        if epoch < first:
            continue
        state.epoch, state.step = epoch, epoch * STEPS
        if losses is not None:
            state.add_losses(np.array(losses[epoch - 1], np.float32))
        evaluation.value = None
        if now is not None:
            evaluation.run()
        context = Context()
        stopping.on_train_epoch_end(context)
        assert context.stopped == (state.stop_reason is not None)
        if context.stopped:
            return epoch
    return None


@pytest.mark.parametrize(
    ("values", "patience", "min_delta", "expected"),
    [
        ([0.1, 0.2, 0.2, 0.2, 0.3], 2, 0.0, 4),  # equal is not better
        ([0.1, 0.2, 0.2, 0.2, 0.3], 3, 0.0, None),
        ([0.1, 0.3, 0.35, 0.38, 0.5], 2, 0.1, 4),  # better, but not by enough: 0.3 stays what counts
        ([0.1, 0.3, 0.45, 0.46, 0.47], 2, 0.1, 5),
        ([0.3, None, None, 0.2, 0.4], 2, 0.0, 4),  # epochs count, evaluated or not
        ([math.nan, math.nan, 0.1], 2, 0.0, 2),
        ([0.5], 1, 0.0, None),
    ],
)
def test_where_it_stops(values, patience, min_delta, expected):
    state = new_state()
    assert epochs_until_stop(state, values, patience, min_delta) == expected
    assert (state.stop_reason is None) == (expected is None)


def test_the_last_epoch_is_an_ordinary_end():
    state = new_state(epochs=3)
    assert epochs_until_stop(state, [0.3, 0.2, 0.1], 2) is None
    assert state.stop_reason is None


@pytest.mark.parametrize("broken_after", [1, 2, 3])
def test_a_resumed_run_stops_at_the_same_place(broken_after):
    values = [0.1, 0.3, 0.2, 0.25, 0.2, 0.9]
    first = new_state()
    assert epochs_until_stop(first, values[:broken_after], 3) is None
    saved = json.loads(json.dumps({**first.saved(), **FACTS}))
    second = new_state()
    go_on(Checkpoint("last.ckpt", {}, saved), second, FACTS)
    assert not out_of_patience(second, 3)
    assert epochs_until_stop(second, values, 3, first=broken_after + 1) == 5
    assert "since epoch 2" in second.stop_reason

    ended = json.loads(json.dumps({**second.saved(), **FACTS}))
    third = new_state()
    go_on(Checkpoint("last.ckpt", {}, ended), third, FACTS)
    assert out_of_patience(third, 3) and not out_of_patience(third, 4) and not out_of_patience(third, None)


def test_the_loss_is_better_when_smaller():
    """Metrics rise, but the loss decides; what overflowed has no loss."""
    losses = [[4, 2], [math.inf, 2], [3, 2], [math.nan]]
    state = new_state("loss")
    assert epochs_until_stop(state, [0.1, 0.2, 0.3, 0.4], 2, losses=losses) == 4
    assert (state.best, state.best_epoch) == (2.0, 2)
    assert state.metrics["map50"] == 0.4 and math.isnan(state.metrics["loss"])


def test_a_loss_in_parts_is_the_mean_of_the_epoch():
    state = new_state("loss")
    state.add_losses(np.array([1.0, 2.0]))
    resumed = new_state("loss")
    resumed.restore(json.loads(json.dumps(state.saved())), 2)
    resumed.add_losses(np.array([6.0]))
    assert resumed.mean_loss() == 3.0
    resumed.epoch = 2
    resumed.add_losses(np.array([5.0]))
    assert resumed.mean_loss() == 5.0


def test_another_metric_starts_anew(caplog):
    first = new_state("map50")
    epochs_until_stop(first, [0.1, 0.3, 0.2], 9)
    first.ranking = [(0.3, 2)]
    saved = json.loads(json.dumps({**first.saved(), **FACTS}))
    second = new_state("loss")
    with caplog.at_level("INFO", "msrun"):
        go_on(Checkpoint("last.ckpt", {}, saved), second, FACTS)
    assert (second.best, second.ranking, second.patience_score, second.patience_epoch) == (None, [], None, 3)
    assert "decided by map50 and is by loss now" in caplog.text


def test_checkpoints_from_before_these_keys_are_read():
    saved = new_state().saved() | FACTS | {"step": STEPS}
    for name in ("save_best_on", "patience_score", "patience_epoch", "epoch_loss", "epoch_losses", "loss_epoch"):
        del saved[name]
    state = new_state()
    assert go_on(Checkpoint("last.ckpt", {}, saved), state, FACTS) == (1, 0)


def test_best_checkpoints_of_the_smallest_loss(tmp_path):
    state = new_state("loss")
    evaluation = SimpleNamespace(value=None)
    saver = CheckpointSaver(state, tmp_path, [], evaluation, KeepPolicy(last=1, best=2), CheckpointWriter(), {})
    for epoch, value in enumerate([3.0, 1.0, 2.0, math.nan], start=1):
        state.epoch, state.step, evaluation.value = epoch, epoch * STEPS, value
        saver.save_epoch()
    assert state.ranking == [(-1.0, 2), (-2.0, 3)]
