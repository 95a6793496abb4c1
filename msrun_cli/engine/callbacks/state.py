"""What the callbacks of one training share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

# Of a train step's outputs, in their order: loss, terms, grad_norm, scale, overflows, lr.
_OUTPUT_TYPES = (np.float32, np.float32, np.float32, np.float32, np.int32, np.float32)


LOSS = "loss"
SMALLER_IS_BETTER = (LOSS,)


@dataclass
class TrainState:
    """Progress of a training; the recorder advances it, the others read it.

    step: finished batches; epoch: the current epoch, from 1; images_per_step: images of one batch on all devices.
    save_best_on: name of the metric that decides what is best, or "loss".
    metrics: of the latest evaluation, after step `evaluated_step`; best, best_epoch: of `save_best_on`;
    ranking: (score, epoch) of the checkpoints kept as best, best first.
    epoch_loss, epoch_losses: sum and number of the finite losses of epoch `loss_epoch` in the log rows so far.
    patience_score, patience_epoch: the evaluation that early stopping compares with, and its epoch.
    unlogged: outputs of the steps since the last log row, one tuple per step; they are kept on the device.
    skipped, skipped_in_a_row: steps that changed nothing, as of the last log row.
    stop_reason: why training was ended before its last epoch.
    """

    epochs: int
    steps_per_epoch: int
    images_per_step: int
    save_best_on: str = ""
    step: int = 0
    epoch: int = 1
    metrics: dict[str, float] = field(default_factory=dict)
    evaluated_step: int = 0
    best: float | None = None
    best_epoch: int | None = None
    ranking: list[tuple[float, int]] = field(default_factory=list)
    unlogged: list[tuple[Any, ...]] = field(default_factory=list)
    epoch_loss: float = 0.0
    epoch_losses: int = 0
    loss_epoch: int = 0
    patience_score: float | None = None
    patience_epoch: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    stop_reason: str | None = None
    signal: int | None = None

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def saved(self) -> dict[str, Any]:
        """What a checkpoint keeps, as JSON can hold it."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        values["unlogged"] = [[np.asarray(as_array(value)).tolist() for value in step] for step in self.unlogged]
        return values

    def mean_loss(self) -> float:
        """Of the steps of this epoch that are logged; NaN without one."""
        return self.epoch_loss / self.epoch_losses if self.epoch_losses else math.nan

    def add_losses(self, losses: np.ndarray) -> None:
        """losses: of the steps of a log row, all of one epoch. Those that are not finite were skipped."""
        if self.loss_epoch != self.epoch:
            self.loss_epoch, self.epoch_loss, self.epoch_losses = self.epoch, 0.0, 0
        finite = losses[np.isfinite(losses)].astype(np.float64)
        self.epoch_loss += float(finite.sum())
        self.epoch_losses += len(finite)

    def forget_best(self) -> None:
        """Start anew with what is best, since another metric decides."""
        self.best = self.best_epoch = self.patience_score = None
        self.ranking, self.patience_epoch = [], self.epoch

    def restore(self, saved: Mapping[str, Any], step: int) -> None:
        """Go on from a saved state, at `step` (its own, unless an epoch has another number of steps now)."""
        self.epoch = max(1, -(-step // self.steps_per_epoch))
        for name in ("metrics", "evaluated_step", "best", "best_epoch", "skipped", "skipped_in_a_row"):
            setattr(self, name, saved[name])
        if self.evaluated_step == int(saved["step"]):
            self.evaluated_step = step
        self.step = step
        self.ranking = [(float(value), int(epoch)) for value, epoch in saved["ranking"]]
        for name in ("epoch_loss", "epoch_losses", "loss_epoch", "patience_score", "patience_epoch"):
            setattr(self, name, saved.get(name, getattr(self, name)))
        self.unlogged = [
            tuple(np.asarray(value, kind) for value, kind in zip(values, _OUTPUT_TYPES, strict=True))
            for values in saved["unlogged"]
        ]


def as_array(value: Any) -> np.ndarray:
    """A step's output on the host; reading a tensor waits for the device."""
    return value.asnumpy() if hasattr(value, "asnumpy") else value


def rows_of_sink(outputs: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What `engine.data_sink.RecordedStep` gives, as one tuple per step, as a step gives it; on the host."""
    columns = [as_array(column).astype(kind) for column, kind in zip(outputs, _OUTPUT_TYPES, strict=True)]
    return list(zip(*columns, strict=True))


def score(name: str, value: float) -> float:
    """Larger is better: the metric, or the loss with its sign turned."""
    return -value if name in SMALLER_IS_BETTER else value


Row = dict[str, float | int | str | None]


class RowSink(Protocol):
    """Takes one row per log interval (kind "step") and per evaluation (kind "epoch")."""

    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...
