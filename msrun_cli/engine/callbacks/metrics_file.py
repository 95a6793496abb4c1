"""metrics.csv and metrics.jsonl: append-only, one row per log interval and per evaluation."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from msrun_cli.engine.callbacks.state import Row

AFTER_TERMS = ("lr", "loss_scale", "overflows", "grad_norm", "images_per_s", "data_wait")


class MetricsFile:
    """Writes each row to both files at once and flushes, so that a killed run keeps what it logged.

    Columns: kind, epoch, step, loss, the loss terms, AFTER_TERMS, the metrics; an empty cell was not measured.
    """

    def __init__(self, path_csv: Path, term_names: tuple[str, ...], metric_names: tuple[str, ...]) -> None:
        self.columns = ["kind", "epoch", "step", "loss", *term_names, *AFTER_TERMS, *metric_names]
        is_new = not path_csv.exists()
        self._csv = path_csv.open("a", newline="", encoding="utf-8")
        self._jsonl = path_csv.with_suffix(".jsonl").open("a", encoding="utf-8")
        self._writer = csv.DictWriter(self._csv, self.columns)
        if is_new:
            self._writer.writeheader()

    def write(self, row: Row) -> None:
        self._writer.writerow(
            {name: "" if row.get(name) is None else row[name] for name in self.columns if name in row}
        )
        self._jsonl.write(json.dumps(row) + "\n")
        self._csv.flush()
        self._jsonl.flush()

    def close(self) -> None:
        self._csv.close()
        self._jsonl.close()
