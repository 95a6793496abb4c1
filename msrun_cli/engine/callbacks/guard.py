"""Stops a training that no longer learns: steps skipped one after the other because of NaN, Inf or overflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from msrun_cli.common.errors import TrainingError
from msrun_cli.engine.callbacks.state import TrainState


class Guard:
    """Counts skipped steps in a row over all log intervals, in the training's state.

    max_consecutive: that many in a row end the training.
    diagnose: called with the last batch, its step and its loss scale, gives what more there is to say.
    """

    def __init__(
        self,
        max_consecutive: int,
        term_names: tuple[str, ...],
        diagnose: Callable[[Sequence[Any], int, float], str] | None = None,
    ) -> None:
        self.max_consecutive = max_consecutive
        self.term_names = term_names
        self.diagnose = diagnose

    def check(
        self,
        state: TrainState,
        terms: np.ndarray,
        overflows: np.ndarray,
        norms: np.ndarray,
        scales: np.ndarray,
        batch: Sequence[Any] | None = None,
    ) -> None:
        """Arrays of one log interval, one row per step; `overflows` is the running count of skipped steps.

        batch: of the last step; None = it is on the device.

        Raises:
            TrainingError: with what is known about the cause.
        """
        before = int(overflows[-2]) if len(overflows) > 1 else state.skipped
        last_was_skipped = int(overflows[-1]) > before
        for index, count in enumerate(overflows):
            new = int(count) - state.skipped
            state.skipped_in_a_row = state.skipped_in_a_row + new if new > 0 else 0
            state.skipped = int(count)
            if state.skipped_in_a_row >= self.max_consecutive:
                step = state.step - (len(overflows) - 1 - index)
                text = self._diagnosis(step, state.skipped_in_a_row, terms[index], norms[index], scales[index])
                if self.diagnose is None:
                    raise TrainingError(text)
                if batch is None:
                    text = f"{text} With device.sink=off the batch is at hand: its layer is named and it is saved."
                elif last_was_skipped:
                    text = f"{text} {self.diagnose(batch, state.step, float(scales[-1]))}"
                else:
                    text = f"{text} Its batch is gone: with logger.every=1 its layer is named and it is saved."
                raise TrainingError(text)

    def _diagnosis(self, step: int, in_a_row: int, terms: np.ndarray, norm: float, scale: float) -> str:
        values = ", ".join(f"{name} {value:g}" for name, value in zip(self.term_names, terms, strict=True))
        if np.isfinite(terms).all():
            cause = (
                "The loss itself is finite, so gradients overflow: use loss_scale=dynamic, a smaller "
                "loss_scale.value, or a lower amp level."
            )
        else:
            cause = (
                "The loss itself is not finite: lower optimizer.lr, lengthen the warm-up, or check weights and data."
            )
        return (
            f"Training stopped at step {step}: the last {in_a_row} steps were skipped because "
            f"their gradient is not finite (loss terms: {values}; gradient norm {norm:g}; loss scale {scale:g}). "
            f"{cause} Checkpoints hold weights from before these steps; where the network broke earlier, go back to "
            "best.ckpt or last_2.ckpt."
        )
