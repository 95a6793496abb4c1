"""What the callbacks of one training share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class TrainState:
    """Progress of a training; the recorder advances it, the others read it.

    step: finished batches; epoch: the current epoch, from 1; images_per_step: images of one batch on all devices.
    metrics: of the latest evaluation, at step `evaluated_step`; best, best_epoch: of the monitored metric.
    stop_reason: why training was ended before its last epoch.
    """

    epochs: int
    steps_per_epoch: int
    images_per_step: int
    step: int = 0
    epoch: int = 1
    metrics: dict[str, float] = field(default_factory=dict)
    evaluated_step: int = -1
    best: float | None = None
    best_epoch: int | None = None
    stop_reason: str | None = None
    signal: int | None = None

    @property
    def total_steps(self) -> int:
        return self.epochs * self.steps_per_epoch


Row = dict[str, float | int | str | None]


class RowSink(Protocol):
    """Takes one row per log interval (kind "step") and per evaluation (kind "epoch")."""

    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...
