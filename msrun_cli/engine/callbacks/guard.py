"""Stops a training that no longer learns: steps skipped one after the other because of NaN, Inf or overflow."""

from __future__ import annotations

import numpy as np

from msrun_cli.common.errors import TrainingError
from msrun_cli.engine.callbacks.state import TrainState


class Guard:
    """Counts skipped steps in a row over all log intervals.

    max_skipped: that many in a row end the training.
    """

    def __init__(self, max_skipped: int, term_names: tuple[str, ...]) -> None:
        self.max_skipped = max_skipped
        self.term_names = term_names
        self.seen = 0
        self.in_a_row = 0

    def check(
        self, state: TrainState, terms: np.ndarray, overflows: np.ndarray, norms: np.ndarray, scales: np.ndarray
    ) -> None:
        """Arrays of one log interval, one row per step; `overflows` is the running count of skipped steps.

        Raises:
            TrainingError: with what is known about the cause.
        """
        for index, count in enumerate(overflows):
            self.in_a_row = self.in_a_row + int(count) - self.seen if count > self.seen else 0
            self.seen = int(count)
            if self.in_a_row >= self.max_skipped:
                raise TrainingError(self._diagnosis(state, terms[index], float(norms[index]), float(scales[index])))

    def _diagnosis(self, state: TrainState, terms: np.ndarray, norm: float, scale: float) -> str:
        values = ", ".join(f"{name} {value:g}" for name, value in zip(self.term_names, terms, strict=True))
        if np.isfinite(terms).all():
            cause = (
                "The loss itself is finite, so gradients overflow: use loss_scale=dynamic, a smaller "
                "loss_scale.value, or a "
                "lower amp level."
            )
        else:
            cause = (
                "The loss itself is not finite: lower optimizer.lr, lengthen the warm-up, or check weights and data."
            )
        return (
            f"Training stopped at step {state.step}: the last {self.in_a_row} steps were skipped because their "
            f"gradient "
            f"is not finite (loss terms: {values}; gradient norm {norm:g}; loss scale {scale:g}). {cause} "
            "The last checkpoint holds weights from before these steps."
        )
