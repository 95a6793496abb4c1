"""Read a dataset in the de-facto YOLO format: images, and one text file of boxes per image."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.boxes import Tally, clean_boxes, first_few
from msrun_cli.data.label_files import Reading, read_label_files, sample_size
from msrun_cli.data.records import DetectionData, Record
from msrun_cli.data.splits import both_splits
from msrun_cli.data.yolo_labels import read_labels
from msrun_cli.data.yolo_layout import YoloFiles, find_files


def read_yolo(
    data_yaml: str, names: list[str] | None = None, keep_empty: bool = True, label_cache: bool = True
) -> DetectionData:
    """Read train and val.

    data_yaml: one of
        a YAML file with `path` (relative to the file), `train`, `val`, `names`, `nc`, where train and val are a folder
        of images, a text file that lists images, or a list of those;
        a folder that holds a data.yaml, or images/train, train/images or train (and the same for val), or images;
        a text file (.txt) that lists images; beside train.txt, val.txt is the val split.
        Labels lie under the same path as the images with `images` replaced by `labels`, or beside the images. Without
        val, val is the train split; the notes say so.
    names: class names in the order of the class index, in place of those of the YAML file; for a folder or a list they
        may stand, one a line, in classes.txt or obj.names beside it
    keep_empty: keep train images without boxes as background (val keeps them always: false alarms there must count)
    label_cache: keep the index in the cache folder, and take it from there while no file changes its size or time
    Class indices are category ids. Samples whose labels are no labels are left out (`Split.faults`). Raises DataError
    for missing folders, classes without a name, and when nothing can be used.
    """
    files = find_files(data_yaml, names)
    _some_have_labels(files)
    reading = Reading(
        "yolo",
        lambda _, image, label, tally: _record(image, label, files.class_names, tally),
        lambda: files.class_names,
        [f"names={list(files.class_names)}"],
    )
    class_names, splits, notes = read_label_files(files.lists, reading, keep_empty, label_cache)
    train, val, said = both_splits(splits, f"in {data_yaml}")
    return DetectionData(train, val, class_names, tuple(range(len(class_names))), (*notes, *said))


def _some_have_labels(files: YoloFiles) -> None:
    for name, found in files.lists.items():
        without = [os.path.isfile(path) for path in found.labels].count(False)
        if without == len(found.labels) and any(os.path.isfile(path) for path in found.images):
            raise DataError(
                f"none of the {without} {name} images has a label file:\n{first_few(found.labels)}\n"
                "Labels are looked for beside the images, with the folder images replaced by labels."
            )
        found.said.add("images without a label file", without)


def _record(image: str, label: str, class_names: Sequence[str], tally: Tally) -> Record:
    width, height = sample_size(image)
    labels, boxes_norm = read_labels(label, class_names, tally)
    scale = np.array([width, height, width, height], np.float64)
    boxes_xyxy, keep = clean_boxes(boxes_norm * scale, width, height, tally)
    labels = labels[keep]
    return Record(image, image, boxes_xyxy[keep], labels, np.zeros(len(labels), bool), width, height)
