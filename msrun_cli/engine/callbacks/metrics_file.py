"""metrics.csv and metrics.jsonl: append-only, one row per log interval and per evaluation."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable
from pathlib import Path

from msrun_cli.common.files import write_text
from msrun_cli.engine.callbacks.state import Row

log = logging.getLogger("msrun")

AFTER_TERMS = ("lr", "loss_scale", "overflows", "grad_norm", "images_per_s", "data_wait")


class MetricsFile:
    """Writes each row to both files at once and flushes, so that a killed run keeps what it logged.

    Columns: kind, epoch, step, loss, the loss terms, AFTER_TERMS, the metrics; an empty cell was not measured.
    step: of the checkpoint that is gone on from; later rows of an earlier try are removed. 0 = all.
    """

    def __init__(
        self, path_csv: Path, term_names: tuple[str, ...], metric_names: tuple[str, ...], step: int = 0
    ) -> None:
        self.columns = ["kind", "epoch", "step", "loss", *term_names, *AFTER_TERMS, *metric_names]
        _cut_behind(path_csv, lambda line: int(next(csv.reader([line]))[2]), step, lines_before=1)
        _cut_behind(path_csv.with_suffix(".jsonl"), lambda line: int(json.loads(line)["step"]), step)
        is_new = not path_csv.exists()
        self._csv = path_csv.open("a", newline="", encoding="utf-8")
        self._jsonl = path_csv.with_suffix(".jsonl").open("a", encoding="utf-8")
        self._writer = csv.DictWriter(self._csv, self.columns)
        self._complained = False
        if is_new:
            self._writer.writeheader()

    def write(self, row: Row) -> None:
        try:
            self._writer.writerow(
                {name: "" if row.get(name) is None else row[name] for name in self.columns if name in row}
            )
            self._jsonl.write(json.dumps(row) + "\n")
            self._csv.flush()
            self._jsonl.flush()
        except OSError as error:  # a full disk must not end a training whose checkpoints are elsewhere or older
            self._complain(error)

    def close(self) -> None:
        for file in (self._csv, self._jsonl):
            try:
                file.close()
            except OSError as error:  # it writes what is left in its buffer
                self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            log.warning("%s cannot be written (%s): training goes on without it.", self._csv.name, error.strerror)
        self._complained = True


def _cut_behind(path: Path, step_of: Callable[[str], int], step: int, lines_before: int = 0) -> None:
    """Remove the rows after `step`, and one that a killed run did not finish."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = lines[:lines_before] if step else []
    for line in lines[lines_before:] if step else []:
        try:
            if line.endswith("\n") and step_of(line) <= step:
                kept.append(line)
        except (ValueError, LookupError, TypeError):
            continue
    if not kept:
        path.unlink()
    elif kept != lines:
        write_text(path, "".join(kept))
