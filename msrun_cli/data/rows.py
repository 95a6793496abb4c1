"""Batches by number ("rows" to MindSpore), put together from samples here or read ahead by threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np

Columns = tuple[np.ndarray, ...]


class Samples(Protocol):
    """Samples write themselves into a batch, so that no picture is copied to put a batch together."""

    def blank(self, number: int) -> Columns:
        """New arrays for a batch of `number` samples; what is in them does not matter."""

    def write(self, index: int, batch: Columns, place: int) -> None:
        """Put sample `index` into row `place` of each array. Called by several threads, each with its own place."""


class BatchRows:
    """Row k: the samples `indices_of(k)`, one row of each array per sample.

    count: rows per epoch. Row numbers go on over the epochs: row k of epoch e is e * count + k.
    finish: (row number, columns) -> columns, for what needs the whole batch
    """

    def __init__(
        self,
        samples: Samples,
        indices_of: Callable[[int], np.ndarray],
        count: int,
        finish: Callable[[int, Columns], Columns] | None = None,
    ) -> None:
        self.samples = samples
        self.indices_of = indices_of
        self.count = count
        self.finish = finish

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> Columns:
        indices = self.indices_of(int(row)).tolist()
        batch = self.samples.blank(len(indices))
        for place, index in enumerate(indices):
            self.samples.write(index, batch, place)
        return self.finished(int(row), batch)

    def finished(self, row: int, batch: Columns) -> Columns:
        """What is done with a whole batch."""
        return batch if self.finish is None else self.finish(row, batch)


class ReadAheadRows(BatchRows):
    """The same rows; `workers` threads read the samples of the wanted row and of those that follow it.

    MindSpore's own thread workers are not used, because their collector sleeps 100 ms whenever nothing is ready: for
    small pictures that makes two workers slower than one.
    end: rows from this one on are not read ahead, since nobody will ask for them; None = there is always a next row
    """

    def __init__(self, rows: BatchRows, workers: int, batch_size: int) -> None:
        super().__init__(rows.samples, rows.indices_of, rows.count, rows.finish)
        self.end: int | None = rows.count
        self._workers = workers
        # One row ahead keeps the threads busy while a finished one is handed over; a row may be too small for all.
        self._ahead = max(1, -(-workers // batch_size))
        self._pool: ThreadPoolExecutor | None = None
        self._pending: dict[int, tuple[Columns, list[Future[None]]]] = {}
        self._lock = threading.Lock()

    def __getitem__(self, row: int) -> Columns:
        row = int(row)
        with self._lock:
            self._forget_others(row)
            for wanted in range(row, row + 1 + self._ahead):
                asked_for = wanted == row or self.end is None or wanted < self.end
                if asked_for and wanted not in self._pending:
                    self._pending[wanted] = self._submit(wanted)
            batch, futures = self._pending.pop(row)
        for future in futures:
            future.result()
        return self.finished(row, batch)

    def _submit(self, row: int) -> tuple[Columns, list[Future[None]]]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="msrun-read")
        indices = self.indices_of(row).tolist()
        batch = self.samples.blank(len(indices))
        return batch, [self._pool.submit(self.samples.write, index, batch, at) for at, index in enumerate(indices)]

    def _forget_others(self, row: int) -> None:
        """Drop rows that an iterator, itself dropped in the middle, left behind."""
        for other in [other for other in self._pending if not row <= other <= row + self._ahead]:
            for future in self._pending.pop(other)[1]:
                future.cancel()
