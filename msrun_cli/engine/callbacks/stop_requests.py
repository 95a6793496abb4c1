"""Ends a training on request: after max_steps, or on a signal, within the current step."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from mindspore.train import Callback

from msrun_cli.engine.callbacks.state import TrainState

log = logging.getLogger("msrun")


class StopRequests(Callback):
    """Must stand behind the recorder and before the evaluation in the list of callbacks.

    SIGINT (Ctrl-C) and SIGTERM (sent by schedulers) end the training after the current step, so that its state
    is saved; a second Ctrl-C leaves at once.

    agree: gives the largest of the signals (0 = none) that the ranks of a job got. They must stop after the same step,
        or one would wait for another for ever; so they ask one another every `every` steps.
    """

    def __init__(
        self, state: TrainState, max_steps: int | None, agree: Callable[[int], int] | None = None, every: int = 1
    ) -> None:
        super().__init__()
        self.state = state
        self.max_steps = max_steps
        self.agree, self.every = agree, every
        self._got = 0  # a signal that the other ranks do not know of yet
        self._step = state.step
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequests:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def on_train_step_end(self, run_context) -> None:
        before, self._step = self._step, self.state.step  # several steps ago when data is sunk
        if self._step // self.every != before // self.every or self._step % self.state.steps_per_epoch == 0:
            self._ask_the_others()
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
        self._ask_the_others()
        if self.state.signal is not None:  # arrived during evaluation
            self.state.stop_reason = self.state.stop_reason or f"signal {signal.Signals(self.state.signal).name}"
            run_context.request_stop()

    def _ask_the_others(self) -> None:
        if self.agree is not None and self.state.signal is None:
            self.state.signal = self.agree(self._got) or None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.agree is not None and not self._got:
            self._got = number
            log.warning("stopping together with the other ranks and saving a checkpoint ...")
        elif self.agree is None and self.state.signal is None:
            self.state.signal = number
            log.warning("stopping after this step and saving a checkpoint (Ctrl-C once more to leave at once) ...")
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        # A further SIGTERM comes from MindSpore when its workers got the signal too: the step is still finished.
