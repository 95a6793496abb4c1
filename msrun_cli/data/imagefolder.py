"""A folder of class folders, `root/train/<class>/*.jpg` and `root/val/<class>/*.jpg` -> pictures with labels."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from msrun_cli.common.errors import ConfigError, DataError
from msrun_cli.data.bad_samples import BadSamples
from msrun_cli.data.records import BadSample, Record

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff"})  # what MindSpore decodes
TRAIN_FOLDERS, VAL_FOLDERS = ("train", "training"), ("val", "valid", "validation")
_NAMED = 5  # files or classes that a message names
_NO_CLASS = "lies in no class folder"
_NO_PICTURE = f"is no picture by its suffix ({', '.join(sorted(SUFFIXES))})"


class PlainRecords(Sequence[Record]):
    """Records of image files of which only the path is known: no boxes, width and height 0."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        """A Record for a number, PlainRecords for a slice."""
        if isinstance(index, slice):
            return PlainRecords(self.paths[index])
        none = np.zeros(0, np.int64)
        return Record(self.paths[index], index, np.zeros((0, 4), np.float32), none, none.astype(bool), 0, 0)


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """name: "train" or "val"; labels: int32 (N,), index into the class names; faults: files that are no pictures."""

    name: str
    paths: tuple[str, ...] = ()
    labels: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    faults: tuple[BadSample, ...] = ()

    @cached_property
    def records(self) -> Sequence[Record]:
        """The files as those who look at image files know them; the same object each time."""
        return PlainRecords(self.paths)

    def __deepcopy__(self, memo: dict[int, Any]) -> LabelledImages:
        return self  # nothing in it changes, and MindSpore copies its datasets with all they hold


@dataclass(frozen=True, slots=True)
class ImageFolderData:
    """notes: sentences for the log; bad_samples: what is done about unreadable images while training, None = they end
    it; the other fields are those of `read_imagefolder`.
    """

    train: LabelledImages
    val: LabelledImages
    class_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    normalize_on: str = "device"
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    bad_samples: BadSamples | None = None


def read_imagefolder(
    root: str,
    train: str | None = None,
    val: str | None = None,
    normalize_on: str = "device",
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
) -> ImageFolderData:
    """List the pictures; other files are faults of their split.

    Classes are the sorted names of the folders; folders inside a class folder count for it.

    root: holds train/ and val/ or one of them. Without val/, evaluation uses train/.
    train, val: other names of these folders below root.
    normalize_on: "device" (the network's first cell) or "host" (the workers), with mean and std on the 0..255 scale.

    Raises:
        ConfigError: an unknown value.
        DataError: no such folder, no classes, one class only, a class without pictures, val with other classes.
    """
    if normalize_on not in ("device", "host"):
        raise ConfigError(f"dataset.normalize_on={normalize_on}: must be device or host.")
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
        splits[name] = _listed(name, place, names, files, notes)
    assert names is not None
    if "val" not in splits:
        notes.append(f"there is no val folder in {folder}: evaluation uses train.")
        splits["val"] = replace(splits["train"], name="val")
    if "train" not in splits:
        notes.append(f"there is no train folder in {folder}: it is for evaluation only.")
        splits["train"] = LabelledImages("train")
    return ImageFolderData(splits["train"], splits["val"], names, tuple(notes), normalize_on, tuple(mean), tuple(std))


def fingerprint(split: LabelledImages) -> str:
    """Hexadecimal digest of the split's file names (without folders, which may move) and labels."""
    digest = hashlib.blake2b(digest_size=16)
    for path in split.paths:
        digest.update(os.fsencode(os.path.basename(path)) + b"\0")
    digest.update(split.labels.astype(np.int64).tobytes())
    return digest.hexdigest()


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
    split: str, folder: Path, names: Sequence[str], files: dict[str, list[str]], notes: list[str]
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
    if nested:
        notes.append(f"{folder}: {nested} pictures lie deeper inside a class folder and count for that class.")
    notes.append(f"{split}: {len(paths)} pictures of {len(names)} classes in {folder}")
    beside = set(files.get("", []))
    faults = tuple(BadSample(path, _NO_CLASS if path in beside else _NO_PICTURE) for path in others)
    return LabelledImages(split, tuple(paths), np.array(labels, np.int32), faults)


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
