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
    diagnose: called with the last batch and its step, gives what more there is to say.
    """

    def __init__(
        self,
        max_consecutive: int,
        term_names: tuple[str, ...],
        diagnose: Callable[[Sequence[Any], int], str] | None = None,
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

        Raises:
            TrainingError: with what is known about the cause.
        """
        for index, count in enumerate(overflows):
            new = int(count) - state.skipped
            state.skipped_in_a_row = state.skipped_in_a_row + new if new > 0 else 0
            state.skipped = int(count)
            if state.skipped_in_a_row >= self.max_consecutive:
                text = self._diagnosis(state, terms[index], float(norms[index]), float(scales[index]))
                if self.diagnose is not None and batch is not None:
                    text = f"{text} {self.diagnose(batch, state.step)}"
                elif self.diagnose is not None:
                    text = f"{text} With device.sink=off the batch is at hand: its layer is named and it is saved."
                raise TrainingError(text)

    def _diagnosis(self, state: TrainState, terms: np.ndarray, norm: float, scale: float) -> str:
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
            f"Training stopped at step {state.step}: the last {state.skipped_in_a_row} steps were skipped because "
            f"their gradient is not finite (loss terms: {values}; gradient norm {norm:g}; loss scale {scale:g}). "
            f"{cause} Checkpoints hold weights from before these steps."
        )
