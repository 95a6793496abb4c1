"""Ends a training on request: after max_steps, or on a signal, within the current step."""

from __future__ import annotations

import logging
import signal
from types import FrameType
from typing import Any

from mindspore.train import Callback

from msrun_cli.engine.callbacks.state import TrainState

log = logging.getLogger("msrun")


class StopRequests(Callback):
    """Must stand behind the recorder and before the evaluation in the list of callbacks.

    SIGINT (Ctrl-C) and SIGTERM (sent by schedulers) end the training after the current step, so that its state
    is saved; a second Ctrl-C leaves at once.
    """

    def __init__(self, state: TrainState, max_steps: int | None) -> None:
        super().__init__()
        self.state = state
        self.max_steps = max_steps
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequests:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def on_train_step_end(self, run_context) -> None:
        if self.state.signal is not None:
            self.state.stop_reason = f"signal {signal.Signals(self.state.signal).name}"
        elif (
            self.max_steps is not None
            and self.state.step >= self.max_steps
            and self.state.step < self.state.total_steps
        ):
            self.state.stop_reason = f"max_steps={self.max_steps}"
        if self.state.stop_reason is not None:
            run_context.request_stop()

    def on_train_epoch_end(self, run_context) -> None:
        if self.state.signal is not None:  # arrived during evaluation
            self.state.stop_reason = self.state.stop_reason or f"signal {signal.Signals(self.state.signal).name}"
            run_context.request_stop()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.state.signal is None:
            self.state.signal = number
            log.warning("stopping after this step and saving a checkpoint (Ctrl-C once more to leave at once) ...")
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        # A further SIGTERM comes from MindSpore when its workers got the signal too: the step is still finished.
