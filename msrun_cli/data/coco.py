"""Read a dataset in COCO format (https://cocodataset.org/#format-data): JSON annotations and image folders."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.boxes import Tally, clean_boxes
from msrun_cli.data.coco_layout import SplitFiles, find_split
from msrun_cli.data.images import image_size
from msrun_cli.data.records import DetectionData, Record, Split


def read_coco(
    root: str,
    train: Mapping[str, str | None] | None = None,
    val: Mapping[str, str | None] | None = None,
    keep_empty: bool = True,
) -> DetectionData:
    """Read both splits under `root`.

    train, val: {"images": folder, "annotations": file}, each relative to `root` or to the working directory, or None =
        found by COCO's naming. Without a val split, val is the train split; without a train split, train is empty; the
        notes say so.
    keep_empty: keep train images without boxes as background (val keeps them always: false alarms there must count)
    Raises DataError for a wrong root, damaged JSON, unknown categories, missing images.
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
            content = _load(files.annotations)
            _same_classes(classes, _categories(content, files.annotations), files.annotations)
            splits[name] = _read_split(content, files, classes, keep_empty or name == "val", notes)
    train_split, val_split = _both(splits, root, notes)
    return DetectionData(train_split, val_split, tuple(classes.values()), tuple(classes), tuple(notes))


def _both(splits: dict[str, Split], root: str, notes: list[str]) -> tuple[Split, Split]:
    train, val = splits.get("train"), splits.get("val")
    if val is None:
        assert train is not None
        notes.append(f"no val split under {root}: evaluating on train")
        val = Split("val", train.records, train.annotation_file)
    if train is None:
        notes.append(f"no train split under {root}: only evaluation is possible")
        train = Split("train", ())
    return train, val


def _load(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # JSON and UTF-8 errors
        raise DataError(f"{path} is not valid JSON: {error}.") from error
    missing = [key for key in ("images", "annotations", "categories") if not isinstance(_get(content, key), list)]
    if missing:
        raise DataError(f"{path} is not a COCO instances file: no list named {', '.join(missing)}.")
    return content


def _get(content: Any, key: str) -> Any:
    return content.get(key) if isinstance(content, dict) else None


def _categories(content: dict[str, Any], path: Path) -> dict[int, str]:
    """{category id: name}, sorted by id."""
    try:
        pairs = [(int(category["id"]), str(category["name"])) for category in content["categories"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: each of its categories needs a whole-number id and a name.") from error
    if not pairs:
        raise DataError(f"{path} lists no categories.")
    if len(dict(pairs)) != len(pairs):
        raise DataError(f"{path} gives two categories the same id.")
    return dict(sorted(pairs))


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


def _read_split(
    content: dict[str, Any], files: SplitFiles, classes: dict[int, str], keep_empty: bool, notes: list[str]
) -> Split:
    tally = Tally()
    images = _images_by_id(content, files)
    grouped = _group_annotations(content, files, images, classes, tally)
    records = [_record(image, files, grouped.get(image_id, []), tally) for image_id, image in images.items()]
    empty = sum(bool(record.iscrowd.all()) for record in records)
    if not keep_empty:
        records = [record for record in records if not record.iscrowd.all()]
    tally.add(f"images without boxes {'kept as background' if keep_empty else 'left out'}", empty)
    boxes = sum(len(record.labels) for record in records)
    notes.append(f"{files.name}: {len(records)} images in {files.images}, {boxes} boxes from {files.annotations}")
    notes.extend(tally.sentences(files.name))
    return Split(files.name, tuple(records), str(files.annotations))


def _images_by_id(content: dict[str, Any], files: SplitFiles) -> dict[int | str, dict[str, Any]]:
    images: dict[int | str, dict[str, Any]] = {}
    for image in content["images"]:
        if not isinstance(image, dict) or "id" not in image or "file_name" not in image:
            raise DataError(f"{files.annotations}: each of its images needs an id and a file_name, got {image!r:.80}.")
        if image["id"] in images:
            raise DataError(f"{files.annotations} gives two images the id {image['id']!r}.")
        images[image["id"]] = image
    files.check_images([str(image["file_name"]) for image in images.values()])
    return images


def _group_annotations(
    content: dict[str, Any],
    files: SplitFiles,
    images: dict[int | str, dict[str, Any]],
    classes: dict[int, str],
    tally: Tally,
) -> dict[int | str, list[tuple[list[float], int, bool]]]:
    """{image id: [(box as x, y, width, height in pixels, class index, is a crowd)]}."""
    index_of = {category: index for index, category in enumerate(classes)}
    grouped: dict[int | str, list[tuple[list[float], int, bool]]] = defaultdict(list)
    for annotation in content["annotations"]:
        if not isinstance(annotation, dict):
            raise DataError(f"{files.annotations}: each of its annotations must be an object, got {annotation!r:.80}.")
        label = index_of.get(annotation.get("category_id"))
        if label is None:
            raise DataError(
                f"{files.annotations}: annotation {annotation.get('id')!r} has category_id "
                f"{annotation.get('category_id')!r}, but the file lists {len(classes)} categories with ids "
                f"{min(classes)}..{max(classes)}."
            )
        box = _numbers(annotation.get("bbox"))
        if annotation.get("image_id") not in images:
            tally.add("annotations of images that the file does not list dropped")
        elif box is None:
            tally.add("annotations without a bbox of four numbers dropped")
        else:
            grouped[annotation["image_id"]].append((box, label, bool(annotation.get("iscrowd", 0))))
    return grouped


def _numbers(box: Any) -> list[float] | None:
    try:
        numbers = [float(number) for number in box]
    except (TypeError, ValueError):
        return None
    return numbers if len(numbers) == 4 else None


def _record(
    image: dict[str, Any], files: SplitFiles, annotations: list[tuple[list[float], int, bool]], tally: Tally
) -> Record:
    path = files.path_of(str(image["file_name"]))
    width, height = image.get("width"), image.get("height")
    if not width or not height:
        width, height = image_size(path)
    boxes = np.array([box for box, _, _ in annotations], np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    boxes_xyxy, keep = clean_boxes(boxes, int(width), int(height), tally)
    labels = np.array([label for _, label, _ in annotations], np.int64)
    iscrowd = np.array([crowd for _, _, crowd in annotations], bool)
    tally.add("crowd boxes, not trained on", (iscrowd & keep).sum())
    return Record(path, image["id"], boxes_xyxy[keep], labels[keep], iscrowd[keep], int(width), int(height))
