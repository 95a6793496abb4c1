"""Which checkpoints are written, and which are kept."""

from __future__ import annotations

import bisect
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore import Parameter
from mindspore.train import Callback

from msrun_cli.common.files import remove_unfinished, write_json
from msrun_cli.engine.callbacks.evaluation import EpochEvaluation
from msrun_cli.engine.callbacks.state import TrainState, score
from msrun_cli.engine.checkpoint import CheckpointWriter

log = logging.getLogger("msrun")


@dataclass(frozen=True)
class KeepPolicy:
    """every: epochs between epoch_*.ckpt, 0 = never; every_steps: batches between saves of last.ckpt besides those at
    the end of each epoch, None = none; last, best: how many of these are kept, last at least 1.
    """

    every: int = 0
    every_steps: int | None = None
    last: int = 2
    best: int = 1


class CheckpointSaver(Callback):
    """Saves last.ckpt after every epoch, best.ckpt when the metric that decides improved, epoch_*.ckpt now and then.

    Older ones are last_2.ckpt, last_3.ckpt, ...; the next best are best_2.ckpt, best_3.ckpt, ...
    Where all steps since the last save were skipped, last.ckpt stays: it holds these weights, and more copies of what
    may be a broken network would push the good ones out.
    Must stand behind the evaluation in the list of callbacks.
    facts: what else the state of a checkpoint says, for a resumed run to compare.
    agree: called before each save, to bring what ranks keep for themselves to one value; only the rank that `writes`
        leaves files.
    gathered: gives what is saved in place of `parameters`, where ranks hold parts; called by all of them.
    """

    def __init__(
        self,
        state: TrainState,
        folder: Path,
        parameters: Sequence[Parameter],
        evaluation: EpochEvaluation,
        policy: KeepPolicy,
        writer: CheckpointWriter,
        facts: Mapping[str, Any],
        agree: Callable[[], None] | None = None,
        writes: bool = True,
        gathered: Callable[[], Sequence[Parameter]] | None = None,
    ) -> None:
        super().__init__()
        self.state, self.folder, self.parameters, self.evaluation = state, folder, parameters, evaluation
        self.policy, self.writer, self.facts = policy, writer, facts
        self.agree, self.writes, self.gathered = agree, writes, gathered
        self._step = state.step
        self._saved: tuple[int, int] | None = None  # (step, skipped) of last.ckpt, once this process has written it
        if writes:
            remove_unfinished(folder)  # of a process that was killed

    def on_train_step_end(self, run_context) -> None:
        every, step = self.policy.every_steps, self.state.step
        before, self._step = self._step, step  # several steps ago when data is sunk
        if every is not None and step // every != before // every and step % self.state.steps_per_epoch:
            self.save_last()

    def on_train_epoch_end(self, run_context) -> None:
        self.save_epoch()

    def save_epoch(self) -> None:
        """Save what the end of an epoch asks for."""
        rank = self._rank()
        self.save_last()  # the ranks agree here; nothing moves before the saves that follow
        if rank is not None:
            self._save("best", rank)
        is_whole = self.state.step % self.state.steps_per_epoch == 0  # and not cut by max_steps or a signal
        if self.policy.every > 0 and self.state.epoch % self.policy.every == 0 and is_whole:
            self._save(f"epoch_{self.state.epoch:04d}")

    def save_last(self, alone: bool = False) -> None:
        """alone: without the other ranks, which may not be at the same step."""
        if self._all_skipped_since():
            log.warning("last.ckpt stays as it is: all steps since then were skipped and changed nothing")
            return
        if self.agree is not None and not alone:
            self.agree()
        self._save("last", 0, self.policy.last)
        self._saved = self.state.step, self.state.skipped

    def _all_skipped_since(self) -> bool:
        if self._saved is None or self.state.step == self._saved[0]:
            return False
        step, skipped = self._saved
        return self.state.skipped - skipped >= self.state.step - step

    def _rank(self) -> int | None:
        """Place of this epoch's evaluation among the best, 0 = the best; None when it is not kept."""
        if self.policy.best == 0 or self.evaluation.value is None:
            return None
        ranking = self.state.ranking
        value = score(self.state.save_best_on, self.evaluation.value)
        if math.isnan(value):
            return None
        # an equal value does not push the older one out
        rank = bisect.bisect_right([-other for other, _ in ranking], -value)
        if rank >= self.policy.best:
            return None
        ranking.insert(rank, (value, self.state.epoch))
        del ranking[self.policy.best :]
        return rank

    def _save(self, name: str, rank: int = 0, keep: int | None = None) -> None:
        """Write `name`'s file of that rank; those from the rank on move one place down, the one behind `keep` goes."""
        parameters = self.parameters if self.gathered is None else self.gathered()
        if not self.writes:
            return
        keep = self.policy.best if keep is None else keep
        state = {**self.state.saved(), **self.facts}

        def make_room() -> None:
            if not name.startswith("epoch"):
                _move_down([self._path(name, place) for place in range(rank, keep)])

        self.writer.write(self._path(name, rank), parameters, state, make_room)
        # for people; what a resumed run reads stands in the checkpoint itself
        try:
            shown = {key: value for key, value in state.items() if key not in ("unlogged", "config")}
            write_json(self.folder / "state.json", shown)
        except OSError as error:
            log.warning("%s cannot be written: %s", self.folder / "state.json", error.strerror)

    def _path(self, name: str, rank: int) -> Path:
        return self.folder / (f"{name}.ckpt" if rank == 0 else f"{name}_{rank + 1}.ckpt")


def _move_down(paths: Sequence[Path]) -> None:
    """Each file takes the name of the next. The first stays in its place too, until it is overwritten."""
    for older, newer in zip(reversed(paths[1:]), reversed(paths[:-1]), strict=True):
        if newer == paths[0]:
            _copy(newer, older)
        elif newer.exists():
            os.replace(newer, older)


def _copy(source: Path, target: Path) -> None:
    """A second name for the same file; what is written later goes to a new file."""
    if not source.exists():
        return
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links: for a moment there is only the older name
        os.replace(source, target)
