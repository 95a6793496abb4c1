from __future__ import annotations

import signal
from types import SimpleNamespace

from msrun_cli.engine.callbacks.evaluation import EpochEvaluation
from msrun_cli.engine.callbacks.guard import Guard
from msrun_cli.engine.callbacks.recorder import StepRecorder
from msrun_cli.engine.callbacks.state import TrainState


class Context:
    def __init__(self) -> None:
        self.stopped = False

    def request_stop(self) -> None:
        self.stopped = True


def evaluated(signal_after: int | None) -> tuple[EpochEvaluation, Context, list[int]]:
    """The end of an epoch with an evaluation of three batches, after one of which a signal comes."""
    state = TrainState(5, 10, 8, "score", step=10)
    seen: list[int] = []

    def evaluate(progress):
        for batch in range(1, 4):
            seen.append(batch)
            if batch == signal_after:
                state.signal = signal.SIGTERM
            progress(batch, 3)
        return SimpleNamespace(metrics={"score": 1.0})

    callback, context = EpochEvaluation(state, evaluate, 1, []), Context()
    callback.on_train_epoch_end(context)
    return callback, context, seen


def test_a_signal_ends_an_evaluation_and_the_training():
    callback, context, seen = evaluated(signal_after=2)
    assert seen == [1, 2] and context.stopped
    assert callback.state.stop_reason == "signal SIGTERM" and callback.value is None
    assert callback.is_overdue()  # for the resumed run


def test_a_signal_behind_the_last_batch_leaves_the_result():
    callback, context, seen = evaluated(signal_after=3)
    assert seen == [1, 2, 3] and context.stopped
    assert callback.value == 1.0 and not callback.is_overdue()


def test_without_a_signal_the_training_goes_on():
    callback, context, seen = evaluated(signal_after=None)
    assert seen == [1, 2, 3] and not context.stopped and callback.state.stop_reason is None


def test_an_evaluation_is_no_wait_for_data(monkeypatch):
    now = 0.0
    monkeypatch.setattr("msrun_cli.engine.callbacks.recorder.time.perf_counter", lambda: now)
    state = TrainState(2, 2, 8, "score")
    recorder = StepRecorder(state, ("error",), 10, [], Guard(3, ("error",)), None)
    recorder.on_train_begin(None)
    recorder.on_train_epoch_begin(None)
    recorder.on_train_epoch_end(None)
    now = 30.0  # evaluation and checkpoint
    recorder.on_train_epoch_begin(None)
    now = 30.5
    recorder.on_train_step_begin(None)
    assert recorder._waited_s == 0.5
