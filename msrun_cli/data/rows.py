"""Batches by number ("rows" to MindSpore), put together from samples here or read ahead by threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np

Columns = tuple[np.ndarray, ...]


class Samples(Protocol):
    def __getitem__(self, index: int) -> Columns: ...


class BatchRows:
    """Row k: the samples `indices_of(k)`, each column stacked.

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
        return self._finished(int(row), [self.samples[index] for index in self.indices_of(int(row)).tolist()])

    def _finished(self, row: int, samples: list[Columns]) -> Columns:
        columns = _stacked(samples)
        return columns if self.finish is None else self.finish(row, columns)


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
        self._pending: dict[int, list[Future[Columns]]] = {}
        self._lock = threading.Lock()

    def __getitem__(self, row: int) -> Columns:
        row = int(row)
        with self._lock:
            self._forget_others(row)
            for wanted in range(row, row + 1 + self._ahead):
                asked_for = wanted == row or self.end is None or wanted < self.end
                if asked_for and wanted not in self._pending:
                    self._pending[wanted] = self._submit(wanted)
            futures = self._pending.pop(row)
        return self._finished(row, [future.result() for future in futures])

    def _submit(self, row: int) -> list[Future[Columns]]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="msrun-read")
        return [self._pool.submit(self.samples.__getitem__, index) for index in self.indices_of(row).tolist()]

    def _forget_others(self, row: int) -> None:
        """Drop rows that an iterator, itself dropped in the middle, left behind."""
        for other in [other for other in self._pending if not row <= other <= row + self._ahead]:
            for future in self._pending.pop(other):
                future.cancel()


def _stacked(samples: list[Columns]) -> Columns:
    return tuple(np.stack(column) for column in zip(*samples, strict=True))
