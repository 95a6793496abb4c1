"""Read a dataset in Pascal VOC's format: one XML file per image."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.boxes import Tally, clean_boxes
from msrun_cli.data.label_files import Reading, read_label_files, sample_size
from msrun_cli.data.records import DetectionData, Record
from msrun_cli.data.splits import both_splits
from msrun_cli.data.voc_layout import find_lists
from msrun_cli.data.voc_xml import read_xml


def read_voc(
    root: str,
    names: list[str] | None = None,
    train_set: str | None = None,
    val_set: str | None = None,
    use_difficult: bool = False,
    keep_empty: bool = True,
    label_cache: bool = True,
) -> DetectionData:
    """Read both splits under `root`.

    root: a folder with Annotations, JPEGImages and ImageSets/Main/{train,val}.txt, or with such folders in it or in its
        VOCdevkit (VOC2007 and VOC2012 are then read together), or a folder of XML files beside their images (with
        subfolders train and val, or all of it is train)
    names: class names in the order of the class index; None = those in the XML files, sorted
    train_set, val_set: names of the lists below ImageSets/Main, for instance "trainval" and "test"
    use_difficult: train on objects marked as difficult. Otherwise they are not trained on; in the val split they are
        always kept like crowds, which the metric ignores
    keep_empty: keep train images without boxes as background (val keeps them always: false alarms there must count)
    label_cache: keep the index in the cache folder, and take it from there while no file changes its size or time
    Class indices are category ids. Samples whose XML cannot be read are left out (`Split.faults`). Raises DataError for
    missing folders, objects that are not among `names`, and when nothing can be used.
    """
    lists = find_lists(Path(root), {"train": train_set, "val": val_set})
    classes = _Classes(names)

    def read(split: str, image: str, label: str, tally: Tally) -> Record:
        return _record(image, label, classes, use_difficult and split == "train", tally)

    settings = [f"names={names}", f"use_difficult={use_difficult}"]
    reading = Reading("voc", read, classes.sorted, settings, classes.sort_labels)
    class_names, splits, notes = read_label_files(lists, reading, keep_empty, label_cache)
    train, val, said = both_splits(splits, f"under {root}")
    return DetectionData(train, val, class_names, tuple(range(len(class_names))), (*notes, *said))


class _Classes:
    """Class names as they turn up, or as they were given."""

    def __init__(self, names: list[str] | None) -> None:
        self.given = bool(names)
        self.index_of = {str(name): index for index, name in enumerate(names or ())}
        if names and len(self.index_of) != len(names):
            raise DataError(f"dataset.names={names} names a class twice.")

    def index(self, name: str, path: str) -> int:
        if name not in self.index_of:
            if self.given:
                raise DataError(
                    f"{path}: object {name!r} is not in the {len(self.index_of)} classes of dataset.names: "
                    f"{', '.join(self.index_of)}. Add it, or set dataset.names=null to take all names that occur."
                )
            self.index_of[name] = len(self.index_of)
        return self.index_of[name]

    def sorted(self) -> list[str]:
        """The class names in the order of their final index."""
        if not self.index_of:
            raise DataError("none of the annotations names an object, so there are no classes: set dataset.names.")
        return list(self.index_of) if self.given else sorted(self.index_of)

    def sort_labels(self, labels: np.ndarray) -> np.ndarray:
        """From the index by first occurrence to the final one."""
        final = {name: index for index, name in enumerate(self.sorted())}
        return np.array([final[name] for name in self.index_of], np.int64)[labels]


def _record(image: str, label: str, classes: _Classes, use_difficult: bool, tally: Tally) -> Record:
    found = read_xml(label, tally)
    width, height = found.size or sample_size(image)
    labels = np.array([classes.index(name, label) for name in found.names], np.int64)
    boxes_xyxy, keep = clean_boxes(found.boxes_xyxy, width, height, tally)
    ignored = found.difficult & (not use_difficult)
    tally.add("difficult objects, not trained on", (ignored & keep).sum())
    return Record(image, image, boxes_xyxy[keep], labels[keep], ignored[keep], width, height)
