"""Read a dataset in the de-facto YOLO format: a data.yaml, image folders, and one text file of boxes per image."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from msrun_cli.common.errors import DataError
from msrun_cli.data.boxes import Tally, clean_boxes, first_few
from msrun_cli.data.images import SUFFIXES, image_size
from msrun_cli.data.records import DetectionData, Record, Split
from msrun_cli.data.yolo_labels import label_path, read_labels


def read_yolo(data_yaml: str, keep_empty: bool = True) -> DetectionData:
    """Read train and val of a data.yaml: `path` (relative to the file), `train`, `val`, `names`, `nc`.

    train, val: a folder of images, a text file that lists images, or a list of those. Labels lie under the same path as
        the images with `images` replaced by `labels`. Without val, val is the train split; the notes say so.
    keep_empty: keep train images without boxes as background (val keeps them always: false alarms there must count)
    Class indices are category ids. Raises DataError for missing files and wrong labels.
    """
    settings = _load(Path(data_yaml))
    class_names = _class_names(settings, data_yaml)
    base = _base(settings, Path(data_yaml))
    notes: list[str] = []
    splits = {
        name: _read_split(name, _as_list(settings[name]), base, class_names, keep_empty or name == "val", notes)
        for name in ("train", "val")
        if settings.get(name)
    }
    if not splits:
        raise DataError(f"{data_yaml} names neither train nor val images.")
    if "val" not in splits:
        notes.append(f"no val split in {data_yaml}: evaluating on train")
    if "train" not in splits:
        notes.append(f"no train split in {data_yaml}: only evaluation is possible")
    train = splits.get("train", Split("train", ()))
    val = splits.get("val", Split("val", train.records))
    return DetectionData(train, val, class_names, tuple(range(len(class_names))), tuple(notes))


def _load(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"dataset.data_yaml={path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not valid YAML: {error}.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold keys: path, train, val, names.")
    return content


def _class_names(settings: dict[str, Any], data_yaml: str) -> tuple[str, ...]:
    names, number = settings.get("names"), settings.get("nc")
    if names is None and isinstance(number, int):
        names = [f"class{index}" for index in range(number)]
    if isinstance(names, Mapping):
        if sorted(map(str, names)) != sorted(map(str, range(len(names)))):
            raise DataError(f"{data_yaml}: the keys of names must be 0..{len(names) - 1} without gaps.")
        names = [names[key] for key in sorted(names, key=int)]
    if not isinstance(names, list) or not names:
        raise DataError(f"{data_yaml}: names must be a list of class names, or a mapping of class index to name.")
    if number is not None and number != len(names):
        raise DataError(f"{data_yaml} says nc={number}, but names lists {len(names)} classes: make them agree.")
    return tuple(map(str, names))


def _base(settings: dict[str, Any], data_yaml: Path) -> Path:
    """The folder that train and val are relative to."""
    path = Path(str(settings.get("path") or "."))
    beside = data_yaml.parent / path
    # Some tools write `path` relative to where they are started instead.
    return path if path.is_dir() and not beside.is_dir() else beside


def _as_list(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _read_split(
    name: str, sources: list[str], base: Path, class_names: tuple[str, ...], keep_empty: bool, notes: list[str]
) -> Split:
    paths = list(dict.fromkeys(path for source in sources for path in _image_paths(base / source, name)))
    missing = [path for path in paths if not os.path.isfile(path)]
    if missing:
        raise DataError(f"{len(missing)} of the {len(paths)} {name} images do not exist:\n{first_few(missing)}")
    tally = Tally()
    with_labels = [os.path.isfile(label_path(path)) for path in paths]
    if not any(with_labels):
        raise DataError(
            f"none of the {len(paths)} {name} images has a label file:\n{first_few(map(label_path, paths))}\n"
            "Labels are looked for beside the images, with the folder images replaced by labels."
        )
    records = [_record(path, class_names, tally) for path in paths]
    empty = sum(not len(record.labels) for record in records)
    if not keep_empty:
        records = [record for record in records if len(record.labels)]
    tally.add("images without a label file", with_labels.count(False))
    tally.add(f"images without boxes {'kept as background' if keep_empty else 'left out'}", empty)
    boxes = sum(len(record.labels) for record in records)
    notes.append(
        f"{name}: {len(records)} images in {', '.join(str(base / source) for source in sources)}, {boxes} boxes"
    )
    notes.extend(tally.sentences(name))
    return Split(name, tuple(records))


def _image_paths(source: Path, name: str) -> list[str]:
    """The images of a folder (subfolders too) or of a list file, whose lines are relative to its folder."""
    if source.is_dir():
        paths = sorted(str(path) for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
    elif source.is_file():
        try:
            lines = source.read_text(encoding="utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}: {source} is neither a folder of images nor a text file that lists them."
            ) from error
        paths = [str(source.parent / line.strip()) for line in lines if line.strip()]
    else:
        raise DataError(f"{name}: {source} does not exist. It should be a folder of images or a file that lists them.")
    if not paths:
        raise DataError(f"{name}: no images in {source} (looked for {', '.join(sorted(SUFFIXES))}).")
    return paths


def _record(path: str, class_names: tuple[str, ...], tally: Tally) -> Record:
    width, height = image_size(path)
    labels, boxes_norm = read_labels(label_path(path), class_names, tally)
    scale = np.array([width, height, width, height], np.float64)
    boxes_xyxy, keep = clean_boxes(boxes_norm * scale, width, height, tally)
    labels = labels[keep]
    return Record(path, path, boxes_xyxy[keep], labels, np.zeros(len(labels), bool), width, height)
