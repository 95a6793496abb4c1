"""The data contract: every reader gives these, everything after the readers takes these.

A detection batch for training has `images` uint8 (B, S, S, 3) RGB and `targets` float32 (B, M, 5): rows of
[class, cx, cy, w, h], the last four as fractions of the image's side, class -1 = padding. M is fixed per run, since
graph mode compiles for one shape. A batch for evaluation has `images`, `index` int32 (B,) into `Split.records`, and
`geometry` float32 (B, 5): rows of [scale, pad_x, pad_y, width, height] with x_net = x_file * scale + pad_x, width and
height in pixels of the file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from msrun_cli.data.bad_samples import BadSamples


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One image file and what is in it.

    boxes_xyxy: float32 (N, 4), pixels of the file, inside the image, with an area
    labels: int64 (N,), class index in [0, number of classes)
    iscrowd: bool (N,); such a box covers a group of objects: never trained on, ignored by the COCO metric
    width, height: pixels of the file, the right way up
    """

    image_path: str
    image_id: int | str
    boxes_xyxy: np.ndarray
    labels: np.ndarray
    iscrowd: np.ndarray
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that cannot be used: the image or label file, and a sentence on why."""

    path: str
    reason: str

    def __str__(self) -> str:
        text = self.reason if self.path in self.reason else f"{self.path}: {self.reason}"
        return text.encode(errors="backslashreplace").decode()  # file names may hold bytes that are no text


@dataclass(frozen=True, slots=True)
class Split:
    """name: "train" or "val"; annotation_file: the COCO JSON the records come from, if there is one.

    records: readers give a `record_table.RecordTable`
    faults: samples that are not among the records, since their labels (or the size of their image) cannot be read
    """

    name: str
    records: Sequence[Record]
    annotation_file: str | None = None
    faults: tuple[BadSample, ...] = ()


@dataclass(frozen=True, slots=True)
class DetectionData:
    """category_ids: the id that the annotation file gives to each class index; notes: sentences for the log.

    bad_samples: what is done about unreadable images while training; None = they end it
    """

    train: Split
    val: Split
    class_names: tuple[str, ...]
    category_ids: tuple[int, ...]
    notes: tuple[str, ...] = ()
    bad_samples: BadSamples | None = None


def fingerprint(split: Split) -> str:
    """Hexadecimal digest of the split's file names (without folders, which may move), sizes, boxes and classes."""
    digest = hashlib.blake2b(digest_size=16)
    for record in split.records:
        digest.update(os.fsencode(os.path.basename(record.image_path)))
        digest.update(np.array([record.width, record.height, len(record.labels)], np.int64).tobytes())
        for column in (record.boxes_xyxy, record.labels, record.iscrowd):
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()
