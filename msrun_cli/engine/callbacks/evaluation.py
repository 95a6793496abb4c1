"""Evaluation between epochs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from mindspore.train import Callback

from msrun_cli.engine.callbacks.state import RowSink, TrainState

log = logging.getLogger("msrun")


class EpochEvaluation(Callback):
    """Calls `evaluate` every `every` epochs (0 = only at the end) and at the end; its result needs `.metrics`.

    monitor: name of the metric that decides which checkpoint is best, larger is better; "loss" = not a metric.
    """

    def __init__(
        self, state: TrainState, evaluate: Callable[[], Any], every: int, monitor: str, sinks: list[RowSink]
    ) -> None:
        super().__init__()
        self.state, self.evaluate, self.every, self.monitor, self.sinks = state, evaluate, every, monitor, sinks
        self.result: Any = None
        self.is_best = False

    def on_train_epoch_end(self, run_context) -> None:
        self.is_best = False
        last = self.state.step >= self.state.total_steps or self.state.stop_reason is not None
        due = self.every > 0 and self.state.epoch % self.every == 0
        if self.state.signal is None and (last or due):
            self._evaluate()

    def _evaluate(self) -> None:
        started = time.perf_counter()
        self.result = self.evaluate()
        state = self.state
        state.metrics = {name: float(value) for name, value in self.result.metrics.items()}
        state.evaluated_step = state.step
        value = state.metrics[self.monitor]
        if state.best is None or value > state.best:
            state.best, state.best_epoch, self.is_best = value, state.epoch, True
        for sink in self.sinks:
            sink.write({"kind": "epoch", "epoch": state.epoch, "step": state.step, **state.metrics})
        shown = "  ".join(f"{name} {value:.4f}" for name, value in state.metrics.items())
        mark = " (best so far)" if self.is_best else ""
        log.info(
            "epoch %d/%d evaluated in %.1f s: %s%s",
            state.epoch,
            state.epochs,
            time.perf_counter() - started,
            shown,
            mark,
        )
