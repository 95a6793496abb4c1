"""What is done about samples that cannot be used: `dataset.on_bad_sample`, one policy for labels and images.

Before training, `screening.screen` brings what the readers and the check of the images found. While training, readers
come here with a record whose image turned bad.
"""

from __future__ import annotations

import csv
import io
import logging
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msrun_cli.common.errors import DataError
from msrun_cli.data.boxes import first_few
from msrun_cli.data.records import BadSample, Record

_HEADER = ("path", "reason")

log = logging.getLogger("msrun")
T = TypeVar("T")


class BadSamples:
    """The policy, and the list of what was bad.

    policy: "error" = the first bad sample ends the job, those known before training with a list; "skip" = bad samples
        are left out, counted and named
    csv_path: where they are listed (path, reason) under "skip"; made when there is a first one
    """

    def __init__(self, policy: str = "error", csv_path: Path | None = None) -> None:
        self.skip = policy == "skip"
        self._list = _SharedList(csv_path)
        self._said = 0
        self._told: list[tuple[Sequence[Record], mmap.mmap]] = []

    def judge(self, found: dict[str, Sequence[BadSample]], totals: dict[str, int]) -> list[str]:
        """What is known before training, by split; gives sentences for the log.

        totals: samples of each split, bad ones included
        Raises DataError under "error" when there is any, and always when nothing of a split is left.
        """
        every = [sample for samples in found.values() for sample in samples]
        for name, samples in found.items():
            if samples and len(samples) == totals[name]:
                raise DataError(
                    f"all {totals[name]} {name} images are bad or missing:\n{first_few(map(str, samples))}\n"
                    "Set the dataset's folders (dataset.root, dataset.data_yaml) to where the images are."
                )
        if every and not self.skip:
            raise DataError(
                f"{len(every)} of the {sum(totals.values())} images are bad (dataset.on_bad_sample=error):\n"
                f"{first_few(map(str, every))}\n"
                "Repair or remove them, or set dataset.on_bad_sample=skip to go on without them."
            )
        for sample in every:
            self._list.add(sample)
        self._said = len(every)
        return [
            f"{name}: {len(samples)} of {totals[name]} images are bad and left out: {_in_a_line(samples)}"
            for name, samples in found.items()
            if samples
        ]

    def turned_bad(self, sample: BadSample) -> None:
        """For workers: a sample that was fine before training cannot be read any more."""
        self._list.add(sample)

    def told(self, records: Sequence[Record]) -> mmap.mmap:
        """A byte per record, shared by all workers and later readers of these records: each bad file is told once."""
        for known, told in self._told:
            if known is records:
                return told
        self._told.append((records, mmap.mmap(-1, max(1, len(records)))))
        return self._told[-1][1]

    def say(self) -> None:
        """Log what turned bad since the last time, in one line; for the process that owns the log."""
        rows = self._list.rows()
        new = list(dict.fromkeys(rows[self._said :]))
        self._said = len(rows)
        if new:
            log.warning("%d more images turned bad and were left out: %s", len(new), _in_a_line(new))

    def __deepcopy__(self, memo: dict[int, Any]) -> BadSamples:
        return self


class GuardedReading:
    """Reads samples by index for workers (threads or forked processes) under a policy; bad=None is "error"."""

    def __init__(self, records: Sequence[Record], read: Callable[[int], T], bad: BadSamples | None) -> None:
        self.records = records
        self.read = read
        self.bad = bad if bad is not None and bad.skip else None
        self._told = None if self.bad is None else self.bad.told(records)

    def first_readable(self, indices: Iterable[int]) -> tuple[int, Any]:
        """The first of the indices whose image can be read, and its sample.

        Raises DataError under "error" for the first one, and under "skip" when none of them can be read.
        """
        failed: DataError | None = None
        for index in indices:
            try:
                return index, self.read(index)
            except DataError as error:
                if self.bad is None:
                    raise
                failed = failed or error
                self._tell(index, error)
        raise DataError(f"none of the images can be read any more, for instance: {failed}")

    def _tell(self, index: int, error: DataError) -> None:
        assert self.bad is not None and self._told is not None
        if not self._told[index]:
            self._told[index] = 1
            self.bad.turned_bad(BadSample(self.records[index].image_path, str(error)))

    def __deepcopy__(self, memo: dict[int, Any]) -> GuardedReading:
        return self


class _SharedList:
    """Rows of a CSV file to which any thread or process appends; without a path, of a file without a name."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._nameless = tempfile.TemporaryFile("a+b") if path is None else None  # noqa: SIM115 - lives as long as this

    def add(self, sample: BadSample) -> None:
        text = io.StringIO()
        csv.writer(text).writerow((sample.path, sample.reason))
        try:
            self._append(text.getvalue().encode(errors="surrogateescape"))
        except OSError as error:
            log.warning("%s cannot be written (%s); bad image: %s", self.path, error.strerror, sample)

    def _append(self, row: bytes) -> None:
        """One write at the end of the file: rows of different processes do not mix."""
        if self.path is None:
            assert self._nameless is not None
            os.write(self._nameless.fileno(), row)
            return
        if not self.path.exists():
            self._begin(self.path)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, row)
        finally:
            os.close(handle)

    def _begin(self, path: Path) -> None:
        """Make the file with its header already in it, unless another process was faster."""
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", dir=path.parent)
        try:
            os.write(handle, ",".join(_HEADER).encode() + b"\r\n")
            os.fchmod(handle, 0o644)
            os.link(name, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            shutil.copyfile(name, path)
        finally:
            os.close(handle)
            os.unlink(name)

    def rows(self) -> list[BadSample]:
        try:
            content = self._content()
        except FileNotFoundError:
            return []
        table = csv.reader(io.StringIO(content.decode(errors="surrogateescape"), newline=""))
        return [BadSample(*row) for row in table if len(row) == 2 and tuple(row) != _HEADER]

    def _content(self) -> bytes:
        if self.path is not None:
            return self.path.read_bytes()
        assert self._nameless is not None
        return os.pread(self._nameless.fileno(), os.fstat(self._nameless.fileno()).st_size, 0)


def _in_a_line(samples: Sequence[BadSample], limit: int = 5) -> str:
    more = f"; and {len(samples) - limit} more" if len(samples) > limit else ""
    return "; ".join(str(sample).rstrip(".") for sample in samples[:limit]) + more
