"""Ends a training that no longer gets better."""

from __future__ import annotations

import logging
import math

from mindspore.train import Callback

from msrun_cli.engine.callbacks.evaluation import EpochEvaluation
from msrun_cli.engine.callbacks.state import TrainState, score

log = logging.getLogger("msrun")


class EarlyStopping(Callback):
    """Stops after `patience` epochs without an evaluation better than the best so far by more than `min_delta`.

    Must stand behind the evaluation and before the saver in the list of callbacks. What it counts is part of the
    training's state, so a resumed run stops where the unbroken one does.
    patience: epochs, at least 1; min_delta: in units of the metric that decides what is best, at least 0.
    """

    def __init__(self, state: TrainState, evaluation: EpochEvaluation, patience: int, min_delta: float) -> None:
        super().__init__()
        self.state, self.evaluation, self.patience, self.min_delta = state, evaluation, patience, min_delta

    def on_train_epoch_end(self, run_context) -> None:
        if self.evaluation.value is not None and self.judge():
            run_context.request_stop()

    def judge(self) -> bool:
        """Count the latest evaluation; whether the training ends with it."""
        state, value = self.state, self.evaluation.value
        if value is None or state.stop_reason is not None or state.step >= state.total_steps:
            return False
        now = score(state.save_best_on, value)
        if math.isfinite(now) and (state.patience_score is None or now > state.patience_score + self.min_delta):
            state.patience_score, state.patience_epoch = now, state.epoch
        elif state.epoch - state.patience_epoch >= self.patience:
            state.stop_reason = (
                f"early_stopping.patience={self.patience}: {state.save_best_on} has not become better by more than "
                f"{self.min_delta:g} since epoch {state.patience_epoch}"
            )
            log.info("stopped by %s", state.stop_reason)
        return state.stop_reason is not None


def out_of_patience(state: TrainState, patience: int | None) -> bool:
    """Whether a resumed state is one that early stopping ended, with the present patience."""
    counted = patience is not None and state.patience_score is not None and state.evaluated_step == state.step
    return counted and state.epoch - state.patience_epoch >= (patience or 0)
