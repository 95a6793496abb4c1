"""What every MindSpore input pipeline of this package shares: workers, epochs, and errors that users can read."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mindspore.dataset as ds

from msrun_cli.common.errors import DataError
from msrun_cli.data.rows import BatchRows, Columns, ReadAheadRows
from msrun_cli.data.workers import allowed_workers, measured_workers

# A worker's error reaches us as text inside a C++ error; the marks find our part again.
_BEGIN, _END = "[data error] ", " [end of data error]"
_MARKED = re.compile(re.escape(_BEGIN) + "(.*?)" + re.escape(_END), re.DOTALL)

_GRACE_S = 30  # of a worker process after SIGTERM


@dataclass(frozen=True)
class LoaderOptions:
    """How batches are read.

    workers: parallel readers, at most one per core; "auto" = see measured_workers
    prefetch: batches that wait ready in MindSpore's queue (one or two more are in the making)
    python_multiprocessing: readers are processes instead of threads; only worth it for transforms that hold Python's
        lock for long
    """

    workers: int | str = 2
    prefetch: int = 2
    python_multiprocessing: bool = False


class Batches(ds.GeneratorDataset):
    """A MindSpore dataset of ready batches, in the order of `rows`.

    first_epoch: None = each iteration gives the same rows. A number = each iteration gives the rows of the next epoch:
        an iterator takes as many epochs as it was made for (`num_epochs`, endless = 1) and the next iterator goes on
        after them, however much of the first one was read. Reading ahead or asking for shapes never moves the epochs,
        since MindSpore works on copies of the sampler.
    first_step: rows to leave out of the first epoch; they are not even read
    after_batch: called for each batch taken from an iterator
    what: named in the log
    Errors of the readers that users should see come out of the iterators as DataError.
    """

    def __init__(
        self,
        rows: BatchRows,
        columns: list[str],
        loader: LoaderOptions,
        *,
        batch_size: int,
        first_epoch: int | None = None,
        first_step: int = 0,
        after_batch: Callable[[], None] | None = None,
        what: str = "this data",
    ) -> None:
        if isinstance(loader.workers, int):
            workers = allowed_workers(loader.workers)
        else:
            workers = measured_workers(rows, what, processes=loader.python_multiprocessing)
        self.readers, self.processes = workers, loader.python_multiprocessing and workers > 1
        self.rows = rows if self.processes else ReadAheadRows(rows, workers, batch_size)
        if first_epoch is not None:
            self._read_ahead_until(None)  # sink mode makes no iterator that would tell the last epoch
        super().__init__(
            _MarkedErrors(self.rows),
            columns,
            sampler=ds.SequentialSampler() if first_epoch is None else EpochSampler(rows.count, first_epoch),
            num_parallel_workers=workers if self.processes else 1,
            python_multiprocessing=self.processes,
        )
        self.loader = loader
        self.after_batch = after_batch
        self.images_per_batch = batch_size
        self.dataset_size = rows.count
        ds.config.set_prefetch_size(max(1, loader.prefetch))
        self.set_init_step(first_step)

    def get_batch_size(self) -> int:
        return self.images_per_batch

    def create_tuple_iterator(self, columns=None, num_epochs=-1, output_numpy=False, do_copy=False):  # type: ignore
        end = self._start(num_epochs)
        with _kept_signal_handlers():
            iterator = super().create_tuple_iterator(columns, num_epochs, output_numpy, do_copy)
        return self._started(iterator, end)

    def create_dict_iterator(self, num_epochs=-1, output_numpy=False, do_copy=False):  # type: ignore
        end = self._start(num_epochs)
        with _kept_signal_handlers():
            iterator = super().create_dict_iterator(num_epochs, output_numpy, do_copy)
        return self._started(iterator, end)

    def rewind(self) -> None:
        """The next iterator of a training's data starts with the first epoch again."""
        if isinstance(self.sampler, EpochSampler):
            self.sampler.epoch = 0

    def _start(self, num_epochs: int) -> int | None:
        """Make the settings that a new iterator reads. Gives the epoch with which the iterator after it starts."""
        # Again, since it is one number for all datasets and another one may have been made in between.
        ds.config.set_prefetch_size(max(1, self.loader.prefetch))
        if not isinstance(self.sampler, EpochSampler):
            return None
        end = self.sampler.epoch + max(1, num_epochs)
        self._read_ahead_until(end * self.rows.count)
        return end

    def _read_ahead_until(self, row: int | None) -> None:
        if isinstance(self.rows, ReadAheadRows):
            self.rows.end = row

    def _started(self, iterator: Any, end: int | None) -> _ReadableErrors:
        if end is not None:
            self.sampler.epoch = end
            self.set_init_step(0)
        return _ReadableErrors(iterator, self.after_batch, self.processes)


@contextmanager
def _kept_signal_handlers() -> Iterator[None]:
    """A new MindSpore iterator takes over SIGINT and SIGTERM, so that Ctrl-C would end the data without a word."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python refuses, and MindSpore does too
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _outlive_termination() -> None:
    """In a worker process: schedulers send SIGTERM to all processes, but the last step still needs its batch.

    MindSpore can wait for ever for a worker that died. The parent ends its workers when it is done.
    """
    signal.signal(signal.SIGTERM, lambda _number, _frame: signal.alarm(_GRACE_S))


class EpochSampler(ds.Sampler):
    """Row numbers of one epoch after the other: e * count, e * count + 1, ..."""

    def __init__(self, count: int, first_epoch: int) -> None:
        super().__init__(num_samples=count)
        self.count = count
        self.epoch = first_epoch

    def __iter__(self) -> Iterator[int]:
        start = self.epoch * self.count
        self.epoch += 1
        return iter(range(start, start + self.count))


class _ReadableErrors:
    """A MindSpore iterator that raises the DataError of a reader instead of the C++ error around it."""

    def __init__(self, iterator: Any, after_batch: Callable[[], None] | None, forks: bool) -> None:
        self._iterator = iterator
        self._after_batch = after_batch
        self._forks = forks
        self._started = False

    def __iter__(self) -> _ReadableErrors:
        return self

    def __next__(self) -> Any:
        try:
            batch = self._next()
        except RuntimeError as error:
            data_error = data_error_of(error)
            if data_error is None:
                raise
            raise data_error from None
        if self._after_batch is not None:
            self._after_batch()
        return batch

    def _next(self) -> Any:
        if self._started:
            return next(self._iterator)
        self._started = True  # workers are launched with the first batch
        if self._forks:
            # A worker that collects an old iterator, left in a reference cycle, crashes in MindSpore's destructor.
            gc.collect()
        with _kept_signal_handlers():
            return next(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


class _MarkedErrors:
    """A source of rows whose DataErrors carry the marks that `data_error_of` looks for."""

    def __init__(self, rows: BatchRows) -> None:
        self.rows = rows
        self._process = os.getpid()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Columns:
        if self._process != os.getpid():
            self._process = os.getpid()
            _outlive_termination()
        try:
            return self.rows[row]
        except DataError as error:
            raise DataError(f"{_BEGIN}{error}{_END}") from None


def data_error_of(error: BaseException) -> DataError | None:
    """The DataError that a reader raised and MindSpore wrapped into `error`, if there is one.

    Iterators of `Batches` do this themselves; sink mode, where the device pulls the data, needs it around Model.train.
    """
    found = _MARKED.search(str(error))
    return DataError(found.group(1)) if found else None
