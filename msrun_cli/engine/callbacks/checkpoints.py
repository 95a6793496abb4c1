"""last, best and every k-th checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from mindspore import Parameter
from mindspore.train import Callback

from msrun_cli.engine.callbacks.evaluation import EpochEvaluation
from msrun_cli.engine.callbacks.state import TrainState
from msrun_cli.engine.checkpoint import save_checkpoint, save_state


class CheckpointSaver(Callback):
    """Saves last.ckpt after every epoch, best.ckpt when the monitored metric improved, epoch_*.ckpt every
    `every` epochs.

    Must stand behind the evaluation in the list of callbacks.
    every: epochs; 0 = never. best: whether to keep best.ckpt.
    """

    def __init__(
        self,
        state: TrainState,
        folder: Path,
        parameters: Sequence[Parameter],
        class_names: Sequence[str],
        evaluation: EpochEvaluation,
        every: int,
        best: bool,
    ) -> None:
        super().__init__()
        self.state, self.folder, self.parameters, self.evaluation = state, folder, parameters, evaluation
        self.every, self.best = every, best
        self.class_names = tuple(class_names)
        folder.mkdir(parents=True, exist_ok=True)

    def on_train_epoch_end(self, run_context) -> None:
        self._save("last")
        if self.best and self.evaluation.is_best:
            self._save("best")
        if self.every > 0 and self.state.epoch % self.every == 0 and self.state.stop_reason is None:
            self._save(f"epoch_{self.state.epoch:04d}")

    def save_last(self) -> None:
        """Save between epochs, after an interruption."""
        self._save("last")

    def _save(self, name: str) -> None:
        save_checkpoint(self.folder / f"{name}.ckpt", self.parameters, self.class_names)
        save_state(self.folder, dataclasses.asdict(self.state))
