"""Small data as the readers give it."""

from __future__ import annotations

import numpy as np

from msrun_cli.data.records import DetectionData, Record, Split


def record(image_id, boxes_xyxy=(), labels=(), iscrowd=None, path="image.jpg", width=100, height=80) -> Record:
    return Record(
        image_path=path,
        image_id=image_id,
        boxes_xyxy=np.array(boxes_xyxy, np.float32).reshape(-1, 4),
        labels=np.array(labels, np.int64),
        iscrowd=np.array([False] * len(labels) if iscrowd is None else iscrowd, bool),
        width=width,
        height=height,
    )


def split_of(records, annotation_file: str | None = None) -> Split:
    return Split("val", tuple(records), annotation_file)


def data_of(class_names=("cat", "dog", "bird"), category_ids=(0, 1, 2)) -> DetectionData:
    return DetectionData(split_of([]), split_of([]), tuple(class_names), tuple(category_ids))
