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
from dataclasses import dataclass

import numpy as np


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
class Split:
    """name: "train" or "val"; annotation_file: the COCO JSON the records come from, if there is one."""

    name: str
    records: tuple[Record, ...]
    annotation_file: str | None = None


@dataclass(frozen=True, slots=True)
class DetectionData:
    """category_ids: the id that the annotation file gives to each class index; notes: sentences for the log."""

    train: Split
    val: Split
    class_names: tuple[str, ...]
    category_ids: tuple[int, ...]
    notes: tuple[str, ...] = ()


def fingerprint(split: Split) -> str:
    """Hexadecimal digest of the split's file names (without folders, which may move), sizes, boxes and classes."""
    digest = hashlib.blake2b(digest_size=16)
    for record in split.records:
        digest.update(os.path.basename(record.image_path).encode())
        digest.update(np.array([record.width, record.height, len(record.labels)], np.int64).tobytes())
        for column in (record.boxes_xyxy, record.labels, record.iscrowd):
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()
