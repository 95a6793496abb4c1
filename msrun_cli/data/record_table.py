"""All records of a split in a few numpy arrays.

A hundred thousand `Record` objects take a gigabyte and are copied page by page into every forked worker, since counting
references writes to them. Arrays are shared by forks, quick to save, and quick to count over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from msrun_cli.data.records import Record


class Strings:
    """Byte strings in one buffer: uint8 (total,), and int64 (N + 1,) where each begins."""

    def __init__(self, buffer: np.ndarray, offsets: np.ndarray) -> None:
        self.buffer, self.offsets = _frozen(buffer), _frozen(offsets)

    @classmethod
    def of(cls, items: Iterable[bytes]) -> Strings:
        items = list(items)
        return cls(np.frombuffer(b"".join(items), np.uint8), offsets_of([len(item) for item in items]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes:
        return self.buffer[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def select(self, indices: np.ndarray) -> Strings:
        rows, offsets = _rows_of(self.offsets, indices)
        return Strings(self.buffer[rows], offsets)


@dataclass(frozen=True, eq=False)
class RecordTable(Sequence[Record]):
    """R records with N boxes in all. `table[i]` is a `Record` whose arrays are views of the columns (read-only).

    folder: the file names are relative to it ("" = to the working directory)
    names: file names as the file system has them
    ids: int64 (R,), or the JSON of each id, or None = the id of a record is its path
    widths, heights: int32 (R,), pixels
    offsets: int64 (R + 1,), record i has the boxes offsets[i]:offsets[i + 1]
    boxes_xyxy float32 (N, 4), labels int64 (N,), iscrowd bool (N,): see `Record`
    source_xywh: float64 (N, 4), the boxes as the annotation file has them (x, y, width, height in pixels, not cut at
        the border of the image), which is what COCO's metric compares with; None = there is nothing better than
        boxes_xyxy
    """

    folder: str
    names: Strings
    ids: np.ndarray | Strings | None
    widths: np.ndarray
    heights: np.ndarray
    offsets: np.ndarray
    boxes_xyxy: np.ndarray
    labels: np.ndarray
    iscrowd: np.ndarray
    source_xywh: np.ndarray | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            if isinstance(getattr(self, item.name), np.ndarray):
                object.__setattr__(self, item.name, _frozen(getattr(self, item.name)))

    @classmethod
    def of(cls, records: Sequence[Record]) -> RecordTable:
        """A table of records whose ids are their paths."""
        counts = [len(record.labels) for record in records]
        return cls(
            "",
            Strings.of(os.fsencode(record.image_path) for record in records),
            None,
            np.array([record.width for record in records], np.int32),
            np.array([record.height for record in records], np.int32),
            offsets_of(counts),
            np.concatenate([np.zeros((0, 4), np.float32), *(record.boxes_xyxy for record in records)]),
            np.concatenate([np.zeros(0, np.int64), *(record.labels for record in records)]),
            np.concatenate([np.zeros(0, bool), *(record.iscrowd for record in records)]),
        )

    def __len__(self) -> int:
        return len(self.widths)

    def __getitem__(self, index: Any) -> Any:
        """A Record for a number, a RecordTable for a slice."""
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        index = range(len(self))[index]  # negative numbers, IndexError
        boxes = slice(self.offsets[index], self.offsets[index + 1])
        return Record(
            self.path(index),
            self.image_id(index),
            self.boxes_xyxy[boxes],
            self.labels[boxes],
            self.iscrowd[boxes],
            int(self.widths[index]),
            int(self.heights[index]),
        )

    def path(self, index: int) -> str:
        return os.path.join(self.folder, os.fsdecode(self.names[index]))

    def image_id(self, index: int) -> Any:
        if self.ids is None:
            return self.path(index)
        return json.loads(self.ids[index]) if isinstance(self.ids, Strings) else int(self.ids[index])

    def trained_counts(self) -> np.ndarray:
        """int64 (R,): boxes of each record that are trained on (no crowds)."""
        total = np.concatenate([[0], np.cumsum(~self.iscrowd)])
        return total[self.offsets[1:]] - total[self.offsets[:-1]]

    def record_of_box(self) -> np.ndarray:
        """int64 (N,): the record that each box belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def select(self, indices: np.ndarray) -> RecordTable:
        """The records `indices`, in this order."""
        rows, offsets = _rows_of(self.offsets, indices)
        ids = self.ids.select(indices) if isinstance(self.ids, Strings) else self.ids
        return RecordTable(
            self.folder,
            self.names.select(indices),
            ids[indices] if isinstance(ids, np.ndarray) else ids,
            self.widths[indices],
            self.heights[indices],
            offsets,
            self.boxes_xyxy[rows],
            self.labels[rows],
            self.iscrowd[rows],
            None if self.source_xywh is None else self.source_xywh[rows],
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordTable:
        return self  # nothing in it changes, and MindSpore copies its datasets with all they hold

    def arrays(self) -> dict[str, np.ndarray]:
        """The columns by name, for np.savez; without `folder`."""
        found = {"names": self.names.buffer, "name_offsets": self.names.offsets}
        if isinstance(self.ids, Strings):
            found |= {"id_texts": self.ids.buffer, "id_offsets": self.ids.offsets}
        elif self.ids is not None:
            found["ids"] = self.ids
        for name in ("widths", "heights", "offsets", "boxes_xyxy", "labels", "iscrowd", "source_xywh"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], folder: str = "") -> RecordTable:
        """The inverse of `arrays`. ValueError or KeyError when the columns do not fit together."""
        ids: np.ndarray | Strings | None = arrays.get("ids")
        if "id_texts" in arrays:
            ids = Strings(arrays["id_texts"], arrays["id_offsets"])
        columns = [arrays[n] for n in ("widths", "heights", "offsets", "boxes_xyxy", "labels", "iscrowd")]
        table = cls(
            folder, Strings(arrays["names"], arrays["name_offsets"]), ids, *columns, arrays.get("source_xywh")
        )  # fmt: skip
        _check(table)
        return table


def trained_counts(records: Sequence[Record]) -> np.ndarray:
    """int64 (R,): boxes of each record that are trained on (no crowds)."""
    if isinstance(records, RecordTable):
        return records.trained_counts()
    return np.array([np.count_nonzero(~record.iscrowd) for record in records], np.int64)


def offsets_of(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """int64 (N + 1,): where each of N runs of these lengths begins, and the end."""
    return np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64))]).astype(np.int64)


def _rows_of(offsets: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the runs `indices`, and the offsets they get when put one after the other."""
    counts = np.diff(offsets)[indices]
    new = offsets_of(counts)
    return np.arange(new[-1]) + np.repeat(offsets[:-1][indices] - new[:-1], counts), new


def _frozen(array: np.ndarray) -> np.ndarray:
    array = array.view()
    array.flags.writeable = False
    return array


def _check(table: RecordTable) -> None:
    records, boxes = len(table.widths), len(table.labels)
    wanted: list[tuple[np.ndarray, type, tuple[int, ...]]] = [
        (table.widths, np.int32, (records,)),
        (table.heights, np.int32, (records,)),
        (table.offsets, np.int64, (records + 1,)),
        (table.boxes_xyxy, np.float32, (boxes, 4)),
        (table.labels, np.int64, (boxes,)),
        (table.iscrowd, np.bool_, (boxes,)),
    ]
    runs = [(table.offsets, boxes)]
    for strings in (table.names, table.ids):
        if isinstance(strings, Strings):
            wanted.append((strings.buffer, np.uint8, (strings.buffer.size,)))
            wanted.append((strings.offsets, np.int64, (records + 1,)))
            runs.append((strings.offsets, strings.buffer.size))
    if isinstance(table.ids, np.ndarray):
        wanted.append((table.ids, np.int64, (records,)))
    if table.source_xywh is not None:
        wanted.append((table.source_xywh, np.float64, (boxes, 4)))
    if any(array.dtype != kind or array.shape != shape for array, kind, shape in wanted):
        raise ValueError("columns of other shapes or types")
    if any(offsets[0] != 0 or offsets[-1] != end or (np.diff(offsets) < 0).any() for offsets, end in runs):
        raise ValueError("offsets that do not fit")
