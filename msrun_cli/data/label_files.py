"""Formats with one label file per image (YOLO, VOC): from pairs of files to splits, through the label cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.boxes import Tally, first_few
from msrun_cli.data.images import image_size
from msrun_cli.data.label_cache import Index, cached_index, state_hash
from msrun_cli.data.record_table import RecordTable
from msrun_cli.data.records import BadSample, Record, Split


class SampleError(DataError):
    """A file that spoils its sample, and no other."""


def sample_size(image_path: str) -> tuple[int, int]:
    """(width, height) in pixels; SampleError when the image cannot be read."""
    try:
        return image_size(image_path)
    except DataError as error:
        raise SampleError(str(error)) from error.__cause__


@dataclass
class FileList:
    """The files of one split: images[i] is described by labels[i], whether or not there are such files.

    where: what the log calls the place
    said: sentences that begin with a number, for the log
    """

    images: list[str]
    labels: list[str]
    where: str
    said: Tally = field(default_factory=Tally)


@dataclass(frozen=True)
class Reading:
    """How a format is read.

    kind: its name
    record: (name of the split, image path, label path, tally) -> Record; SampleError when this sample is bad
    classes: the class names, asked for when all records are read
    settings: everything besides the files that decides the result
    final_labels: what becomes of the records' labels when all are read
    """

    kind: str
    record: Callable[[str, str, str, Tally], Record]
    classes: Callable[[], Sequence[str]]
    settings: Sequence[str]
    final_labels: Callable[[np.ndarray], np.ndarray] = lambda labels: labels


def read_label_files(
    lists: dict[str, FileList], reading: Reading, keep_empty: bool, cache: bool
) -> tuple[tuple[str, ...], dict[str, Split], list[str]]:
    """(class names, splits by name, sentences for the log).

    Raises DataError when no image of a split exists, and what `reading` raises besides SampleError.
    """
    missing = {name: _without_missing(name, files) for name, files in lists.items()}

    def build() -> Index:
        return _index(lists, reading, keep_empty)

    if cache:
        files = [path for found in lists.values() for path in (*found.images, *found.labels)]
        sizes = [f"{name} {len(found.images)}" for name, found in lists.items()]
        settings = [f"keep_empty={keep_empty}", *sizes, *reading.settings]
        index = cached_index(reading.kind, [state_hash(files), *settings], build)
    else:
        index = build()
    splits, notes = {}, []
    for name, found in lists.items():
        table = index.tables[name]
        notes.append(f"{name}: {len(table)} images in {found.where}, {len(table.labels)} boxes")
        notes += [*found.said.sentences(name), *index.facts["said"][name]]
        faults = [BadSample(path, reason) for path, reason in index.facts["faults"][name]]
        splits[name] = Split(name, table, None, (*missing[name], *faults))
    return tuple(index.facts["classes"]), splits, notes


def _without_missing(name: str, files: FileList) -> list[BadSample]:
    """Take the images that do not exist out of the list."""
    there = [os.path.isfile(path) for path in files.images]
    absent = [path for path, is_there in zip(files.images, there, strict=True) if not is_there]
    if absent and not any(there):
        raise DataError(
            f"{len(absent)} of the {len(there)} {name} images do not exist:\n{first_few(absent)}\n"
            f"Set the paths in {files.where}."
        )
    if absent:
        files.labels = [path for path, is_there in zip(files.labels, there, strict=True) if is_there]
        files.images = [path for path, is_there in zip(files.images, there, strict=True) if is_there]
    return [
        BadSample(path, "it is a link to a file that does not exist" if os.path.islink(path) else "it does not exist")
        for path in absent
    ]


def _index(lists: dict[str, FileList], reading: Reading, keep_empty: bool) -> Index:
    tables: dict[str, RecordTable] = {}
    said: dict[str, list[str]] = {}
    faults: dict[str, list[list[str]]] = {}
    lasting = True
    for name, files in lists.items():
        tally, records, faults[name] = Tally(), [], []
        for image, label in zip(files.images, files.labels, strict=True):
            try:
                records.append(reading.record(name, image, label, tally))
            except SampleError as error:
                # A file that could not be opened may be open to us next time, without another time or size.
                lasting &= not isinstance(error.__cause__, OSError)
                faults[name].append([image, str(error)])
        if not records:
            listed = [f"{path}: {reason}" for path, reason in faults[name]]
            raise DataError(f"none of the {len(files.images)} {name} images can be used:\n{first_few(listed)}")
        keep = keep_empty or name == "val"
        tally.add(
            f"images without boxes {'kept as background' if keep else 'left out'}",
            sum(bool(record.iscrowd.all()) for record in records),
        )
        if not keep:
            records = [record for record in records if not record.iscrowd.all()]
        tables[name], said[name] = RecordTable.of(records), tally.sentences(name)
    tables = {name: replace(table, labels=reading.final_labels(table.labels)) for name, table in tables.items()}
    return Index(tables, {"classes": list(reading.classes()), "said": said, "faults": faults}, lasting)
