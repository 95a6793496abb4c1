"""Read a dataset in COCO format (https://cocodataset.org/#format-data): JSON annotations and image folders."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from msrun_cli.common.errors import DataError
from msrun_cli.data.coco_index import index_coco
from msrun_cli.data.coco_layout import SplitFiles, find_split
from msrun_cli.data.label_cache import Index, cached_index, content_hash
from msrun_cli.data.records import BadSample, DetectionData, Split
from msrun_cli.data.splits import both_splits


def read_coco(
    root: str,
    train: Mapping[str, str | None] | None = None,
    val: Mapping[str, str | None] | None = None,
    keep_empty: bool = True,
    label_cache: bool = True,
) -> DetectionData:
    """Read both splits under `root`.

    train, val: {"images": folder, "annotations": file}, each relative to `root` or to the working directory, or None =
        found by COCO's naming. Without a val split, val is the train split; without a train split, train is empty; the
        notes say so.
    keep_empty: keep train images without boxes as background (val keeps them always: false alarms there must count)
    label_cache: keep the index in the cache folder, and take it from there when the annotation file is the same
    An annotation without a bbox gets the box around its segmentation. Repeated entries of an image file and repeated
    annotations are dropped; the notes count them and everything else that was dropped.
    Raises DataError for a wrong root, damaged JSON, unknown categories, and when none of the images exists.
    """
    if not Path(root).is_dir():
        raise DataError(f"dataset.root={root} is not a folder. It should hold annotations/instances_train*.json.")
    found = {name: find_split(Path(root), name, wanted) for name, wanted in (("train", train), ("val", val))}
    if found["train"] is None and found["val"] is None:
        raise DataError(
            f"no COCO annotations under {root}: looked for annotations/instances_train*.json, "
            "annotations/instances_val*.json, the same without annotations/, and train/_annotations.coco.json. "
            "Set dataset.root, or dataset.train.annotations and dataset.train.images."
        )
    notes: list[str] = []
    splits: dict[str, Split] = {}
    classes: dict[int, str] = {}
    for name, files in found.items():
        if files is not None:
            index = _index(files, keep_empty or name == "val", label_cache)
            _same_classes(classes, dict(index.facts["classes"]), files.annotations)
            splits[name] = _split(index, files, notes)
    train_split, val_split, said = both_splits(splits, f"under {root}")
    return DetectionData(train_split, val_split, tuple(classes.values()), tuple(classes), (*notes, *said))


def _index(files: SplitFiles, keep_empty: bool, label_cache: bool) -> Index:
    if not label_cache:
        return index_coco(files, keep_empty)
    made_from = [content_hash(files.annotations), files.name, f"keep_empty={keep_empty}"]
    return cached_index("coco", made_from, lambda: index_coco(files, keep_empty))


def _split(index: Index, files: SplitFiles, notes: list[str]) -> Split:
    table = index.tables["records"]
    files.settle([os.fsdecode(table.names[row]) for row in range(len(table))])
    table = replace(table, folder=str(files.images))
    notes.append(
        f"{files.name}: {len(table)} images in {files.images}, {len(table.labels)} boxes from {files.annotations}"
    )
    notes.extend(index.facts["said"])
    faults = tuple(BadSample(files.path_of(name), reason) for name, reason in index.facts["faults"])
    return Split(files.name, table, str(files.annotations), faults)


def _same_classes(classes: dict[int, str], found: dict[int, str], path: Path) -> None:
    """Take the classes of the first file; the second one must agree with them."""
    if classes and classes != found:
        raise DataError(
            f"{path} has other categories than the train annotations: {_differences(classes, found)}. "
            "Both files must list the same ids and names."
        )
    classes.update(found)


def _differences(first: dict[int, str], second: dict[int, str]) -> str:
    ids = sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
    return ", ".join(f"id {key} is {first.get(key)!r} in one and {second.get(key)!r} in the other" for key in ids[:3])
