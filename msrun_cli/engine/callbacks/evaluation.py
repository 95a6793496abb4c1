"""Evaluation between epochs."""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Callable
from typing import Any

from mindspore.train import Callback

from msrun_cli.engine.callbacks.state import LOSS, RowSink, TrainState, score

log = logging.getLogger("msrun")

Evaluate = Callable[[Callable[[int, int], None]], Any]


class _Left(Exception):
    """A signal came in the middle of an evaluation."""


class EpochEvaluation(Callback):
    """Calls `evaluate` every `every` epochs (0 = only at the end) and at the end; its result needs `.metrics`.

    `evaluate` calls back after each batch. A signal ends the evaluation there and the training with it, so that a state
    is saved at once; a resumed run begins with the evaluation.

    The state's `save_best_on` names the metric that decides which checkpoint is best, or is "loss": the mean loss of
    the epoch's steps, which then stands beside the metrics; the smallest is best.
    """

    def __init__(self, state: TrainState, evaluate: Evaluate, every: int, sinks: list[RowSink]) -> None:
        super().__init__()
        self.state, self.evaluate, self.every, self.sinks = state, evaluate, every, sinks
        self.result: Any = None
        self.value: float | None = None  # of what decides, when this epoch was evaluated

    def on_train_epoch_end(self, run_context) -> None:
        self.value = None
        if self.state.signal is None and (self._is_due() or self.state.stop_reason is not None):
            self.run()
            if self.state.signal is not None:
                run_context.request_stop()

    def is_overdue(self) -> bool:
        """Whether a signal came between the last step of an epoch and its evaluation, before the run was resumed."""
        state = self.state
        at_end = state.step > 0 and state.step % state.steps_per_epoch == 0
        return at_end and state.evaluated_step != state.step and self._is_due()

    def _is_due(self) -> bool:
        last = self.state.step >= self.state.total_steps
        return last or (self.every > 0 and self.state.epoch % self.every == 0)

    def _leave_on_signal(self, done: int, total: int) -> None:
        if self.state.signal is not None and done < total:
            raise _Left

    def run(self) -> None:
        """Evaluate now."""
        started = time.perf_counter()
        state = self.state
        try:
            self.result = self.evaluate(self._leave_on_signal)
        except _Left:
            assert state.signal is not None
            state.stop_reason = f"signal {signal.Signals(state.signal).name}"
            return
        state.metrics = {name: float(value) for name, value in self.result.metrics.items()}
        state.evaluated_step = state.step
        name = state.save_best_on
        if name == LOSS:
            state.metrics[LOSS] = state.mean_loss()
        self.value = value = state.metrics[name]
        is_best = not math.isnan(value) and (state.best is None or score(name, value) > score(name, state.best))
        if is_best:
            state.best, state.best_epoch = value, state.epoch
        for sink in self.sinks:
            sink.write({"kind": "epoch", "epoch": state.epoch, "step": state.step, **state.metrics})
        shown = "  ".join(f"{name} {value:.4f}" for name, value in state.metrics.items())
        mark = " (best so far)" if is_best else ""
        log.info(
            "epoch %d/%d evaluated in %.1f s: %s%s",
            state.epoch,
            state.epochs,
            time.perf_counter() - started,
            shown,
            mark,
        )
