"""A folder of class folders, `root/train/<class>/*.jpg` and `root/val/<class>/*.jpg` -> pictures with labels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from msrun_cli.common.errors import ConfigError, DataError

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff"})  # what MindSpore decodes
TRAIN_FOLDERS, VAL_FOLDERS = ("train", "training"), ("val", "valid", "validation")
_NAMED = 5  # files or classes that a message names


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImages:
    """name: "train" or "val"; labels: int32 (N,), index into the class names."""

    name: str
    paths: tuple[str, ...] = ()
    labels: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))


@dataclass(frozen=True, slots=True)
class ImageFolderData:
    """notes: sentences for the log; the other fields are those of `read_imagefolder`."""

    train: LabelledImages
    val: LabelledImages
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    normalize_on: str = "device"
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    on_bad_sample: str = "skip"


def read_imagefolder(
    root: str,
    train: str | None = None,
    val: str | None = None,
    normalize_on: str = "device",
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
    on_bad_sample: str = "skip",
) -> ImageFolderData:
    """List the pictures. Classes are the sorted names of the folders; folders inside a class folder count for it.

    root: holds train/ and val/ or one of them. Without val/, evaluation uses train/.
    train, val: other names of these folders below root.
    normalize_on: "device" (the network's first cell) or "host" (the workers), with mean and std on the 0..255 scale.
    on_bad_sample: files that are no pictures are left out and counted ("skip") or an error ("error").

    Raises:
        ConfigError: an unknown value.
        DataError: no such folder, no classes, one class only, a class without pictures, val with other classes.
    """
    _check_choice("normalize_on", normalize_on, ("device", "host"))
    _check_choice("on_bad_sample", on_bad_sample, ("skip", "error"))
    folder = Path(root).expanduser()
    found = {"train": _split_folder(folder, train, TRAIN_FOLDERS), "val": _split_folder(folder, val, VAL_FOLDERS)}
    if not any(found.values()):
        raise DataError(_no_split(folder))
    splits, notes, names = {}, [], None
    for name, place in found.items():
        if place is None:
            continue
        files = _files_by_class(place)
        if names is None:
            names = _class_names(place, files)
        else:
            _check_same_classes(names, sorted(files), place)
        splits[name] = _listed(name, place, names, files, on_bad_sample, notes)
    assert names is not None
    if "val" not in splits:
        notes.append(f"there is no val folder in {folder}: evaluation uses train.")
        splits["val"] = LabelledImages("val", splits["train"].paths, splits["train"].labels)
    if "train" not in splits:
        notes.append(f"there is no train folder in {folder}: it is for evaluation only.")
        splits["train"] = LabelledImages("train")
    return ImageFolderData(
        splits["train"], splits["val"], names, tuple(notes), normalize_on, tuple(mean), tuple(std), on_bad_sample
    )


def _split_folder(root: Path, name: str | None, usual: Sequence[str]) -> Path | None:
    if name is None:
        return next((root / option for option in usual if (root / option).is_dir()), None)
    if not (root / name).is_dir():
        raise DataError(f"there is no folder {root / name}. {_inside(root)}")
    return root / name


def _files_by_class(folder: Path) -> dict[str, list[str]]:
    """Class -> all files below its folder, sorted; "" for files that lie beside the class folders."""
    found: dict[str, list[str]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            found[entry.name] = sorted(_all_files(entry))
        else:
            found.setdefault("", []).append(str(entry))
    return found


def _all_files(folder: Path) -> list[str]:
    def failed(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be listed: {error.strerror}.")

    walk = os.walk(folder, followlinks=True, onerror=failed)
    return [os.path.join(place, name) for place, _, names in walk for name in names]


def _class_names(folder: Path, files: dict[str, list[str]]) -> tuple[str, ...]:
    names = tuple(sorted(name for name in files if name))
    if not names:
        raise DataError(f"{folder} holds no class folders: put the pictures into one folder per class below it.")
    if len(names) == 1:
        raise DataError(f"{folder} holds one class only ({names[0]}): classification needs at least two class folders.")
    return names


def _check_same_classes(names: Sequence[str], others: Sequence[str], folder: Path) -> None:
    others = [name for name in others if name]
    missing, extra = sorted(set(names) - set(others)), sorted(set(others) - set(names))
    parts = [f"lacks {_some(missing)}"] * bool(missing) + [f"has {_some(extra)}, which train does not have"] * bool(
        extra
    )
    if parts:
        raise DataError(
            f"{folder} {' and '.join(parts)}: train and val must have the same class folders ({len(names)} in train)."
        )


def _listed(
    split: str, folder: Path, names: Sequence[str], files: dict[str, list[str]], policy: str, notes: list[str]
) -> LabelledImages:
    paths: list[str] = []
    labels: list[int] = []
    others = list(files.get("", []))
    nested = 0
    for label, name in enumerate(names):
        pictures = [path for path in files[name] if os.path.splitext(path)[1].lower() in SUFFIXES]
        others += sorted(set(files[name]) - set(pictures))
        if not pictures:
            raise DataError(
                f"the class folder {folder / name} holds no picture ({', '.join(sorted(SUFFIXES))}). "
                "Put pictures into it or remove it."
            )
        nested += sum(os.path.dirname(path) != str(folder / name) for path in pictures)
        paths += pictures
        labels += [label] * len(pictures)
    if others:
        text = f"{folder}: {len(others)} files are no pictures in a class folder: {_some(others)}"
        if policy == "error":
            raise DataError(f"{text}. Remove them, or set dataset.on_bad_sample=skip.")
        notes.append(f"{text}; left out.")
    if nested:
        notes.append(f"{folder}: {nested} pictures lie deeper inside a class folder and count for that class.")
    notes.append(f"{split}: {len(paths)} pictures of {len(names)} classes in {folder}")
    return LabelledImages(split, tuple(paths), np.array(labels, np.int32))


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest


def _no_split(root: Path) -> str:
    if not root.is_dir():
        return f"dataset.root={root}: there is no such folder."
    return (
        f"dataset.root={root} holds neither train/ nor val/ ({', '.join(VAL_FOLDERS[1:])}). {_inside(root)} Each of "
        "them holds one folder per class; dataset.train and dataset.val give them other names."
    )


def _inside(root: Path) -> str:
    names = sorted(entry.name for entry in root.iterdir() if entry.is_dir()) if root.is_dir() else []
    return f"Folders there: {_some(names)}." if names else f"There are no folders in {root}."


def _check_choice(key: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ConfigError(f"dataset.{key}={value}: must be {' or '.join(choices)}.")
