"""The two splits of a dataset as the checks see them, for detection and for classification."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from msrun_cli.data.records import DetectionData, Record, Split

_LABEL_SUFFIXES = (".txt", ".xml", ".json")


@dataclass(frozen=True)
class CheckedSplit:
    """name: "train", "val", or "files" for images without annotations.

    classes: int64 (N,), class index of each box or, in classification, of each image; owners: int64 (N,), the record
    each belongs to; boxes_xyxy: float64 (N, 4) pixels of the file, (0, 4) in classification; crowds: bool (N,)
    sizes: int64 (records, 2), width and height as annotated, 0 = unknown, as for images that the reader left out
    refused: (path, reason, record or None) of samples that the reader left out, for their labels or for their image
    """

    name: str
    records: Sequence[Record]
    classes: np.ndarray
    owners: np.ndarray
    boxes_xyxy: np.ndarray
    crowds: np.ndarray
    sizes: np.ndarray
    refused: tuple[tuple[str, str, int | None], ...] = ()


@dataclass(frozen=True)
class CheckedData:
    """task: "detection", "classification" or "files" (no annotations could be read)."""

    task: str
    train: CheckedSplit
    val: CheckedSplit
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Evaluation would run on the training images."""
        train, val = self.train.records, self.val.records
        return bool(len(train)) and (
            train is val or [item.image_path for item in train] == [item.image_path for item in val]
        )

    @property
    def splits(self) -> list[CheckedSplit]:
        """Those to look at: val is left out where it is train again."""
        return [self.train] if self.same else [split for split in (self.train, self.val) if len(split.records)]


def detection_view(data: DetectionData) -> CheckedData:
    train = _boxes_view(data.train)
    # Without a val split readers give the train records again, but not what they left out of them.
    val = replace(train, name="val") if data.val.records is data.train.records else _boxes_view(data.val)
    return CheckedData("detection", train, val, data.class_names, data.notes)


def _boxes_view(split: Split) -> CheckedSplit:
    # Samples that a reader could not use: their images are looked at like all others.
    faults = [(fault.path, fault.reason) for fault in getattr(split, "faults", ())]
    images = [path for path, _ in faults if os.path.splitext(path)[1].lower() not in _LABEL_SUFFIXES]
    records: Sequence[Record] = split.records
    place = {path: index for index, path in enumerate(images, len(records))}
    if images:
        records = [*records, *paths_view(split.name, images).records]
    counts = [len(record.labels) for record in records]
    return CheckedSplit(
        split.name,
        records,
        np.concatenate([record.labels for record in records] or [np.zeros(0)]).astype(np.int64),
        np.repeat(np.arange(len(counts)), counts),
        np.concatenate([record.boxes_xyxy for record in records] or [np.zeros((0, 4))]).astype(np.float64),
        np.concatenate([record.iscrowd for record in records] or [np.zeros(0)]).astype(bool),
        _sizes(records),
        tuple((path, reason, place.get(path)) for path, reason in faults),
    )


def labelled_view(
    splits: Sequence[tuple[str, Sequence[str], Sequence[int]]], class_names: tuple[str, ...], notes: Sequence[str]
) -> CheckedData:
    """splits: name, paths and class index of each image, for train and for val."""
    train, val = (paths_view(name, paths, np.array(labels, np.int64)) for name, paths, labels in splits)
    return CheckedData("classification", train, val, class_names, tuple(notes))


def paths_view(name: str, paths: Sequence[str], labels: np.ndarray | None = None) -> CheckedSplit:
    """Images with a class each, or with nothing."""
    none = np.zeros(0, np.int64)
    records = [
        Record(path, index, np.zeros((0, 4), np.float32), none, none.astype(bool), 0, 0)
        for index, path in enumerate(paths)
    ]
    classes = none if labels is None else labels
    return CheckedSplit(
        name,
        records,
        classes,
        np.arange(len(classes)),
        np.zeros((0, 4)),
        np.zeros(len(classes), bool),
        _sizes(records),
    )


def _sizes(records: Sequence[Record]) -> np.ndarray:
    return np.array([(record.width, record.height) for record in records], np.int64).reshape(-1, 2)
