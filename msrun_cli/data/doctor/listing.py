"""Image files without a reader: a folder per class, and what lies about where a reader gave up."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import yaml

from msrun_cli.common.errors import DataError
from msrun_cli.data.doctor.checked import CheckedData, CheckedSplit, labelled_view, paths_view
from msrun_cli.data.images import SUFFIXES

# Other names of the split folders.
_SPLITS = {"train": ("train", "training"), "val": ("val", "valid", "validation", "test")}
# Looked at too: they are no images that can be read, and a doctor should say so instead of passing over them.
_OTHER_SUFFIXES = frozenset({".gif", ".heic", ".heif", ".avif", ".jfif", ".jpe", ".jxl", ".jp2"})


def read_class_folders(root: str, train: str | None = None, val: str | None = None) -> CheckedData:
    """`root` with train/ and val/ (also valid, validation, test), in each one folder per class.

    train, val: other names of these folders
    Files of any kind count, so that what is no image is found; hidden ones do not. Without one of the folders that
    split is empty. Raises DataError without both, without one that was named, and without class folders.
    """
    named = {"train": train, "val": val}
    found = {
        name: _split_folder(Path(root), usual if named[name] is None else (named[name],))
        for name, usual in _SPLITS.items()
    }
    if not any(found.values()):
        raise DataError(
            f"{root} has no folder {train or 'train'}. It should hold train/CLASS/*.jpg and val/CLASS/*.jpg."
        )
    for name, wanted in named.items():
        if wanted is not None and found[name] is None:
            raise DataError(f"{root} has no folder {wanted} (dataset.{name}).")
    folders = {name: _class_folders(folder) if folder else [] for name, folder in found.items()}
    class_names = tuple(sorted({folder.name for name in folders for folder in folders[name]}))
    if not class_names:
        raise DataError(f"{found['train'] or found['val']} has no folders: it should hold one for each class.")
    notes: list[str] = []
    splits = []
    for name in ("train", "val"):
        pairs = [(path, class_names.index(folder.name)) for folder in folders[name] for path in _files(folder)]
        splits.append((name, [path for path, _ in pairs], [label for _, label in pairs]))
        folder = found[name]
        if folder is None:
            notes.append(f"no {name} folder under {root}")
            continue
        notes.append(f"{name}: {len(pairs)} files in {len(folders[name])} class folders of {folder}")
        loose = len(_files(folder, deep=False))
        notes += [f"{name}: {loose} files beside the class folders left out"] * bool(loose)
    return labelled_view(splits, class_names, notes)


def list_images(places: Iterable[str]) -> CheckedSplit:
    """Every image file below the folders, by suffix, without annotations."""
    paths = {
        path
        for place in places
        for path in _files(Path(place))
        if os.path.splitext(path)[1].lower() in SUFFIXES | _OTHER_SUFFIXES
    }
    return paths_view("files", sorted(paths))


def folders_of(values: Iterable[str]) -> list[str]:
    """Folders that settings of a dataset point to: folders themselves, those of files, those that a YAML file names."""
    folders: dict[str, None] = {}
    for value in values:
        if os.path.isdir(value):
            folders[value] = None
        elif value.endswith((".yaml", ".yml")) and os.path.isfile(value):
            folders.update(dict.fromkeys(_named_in(Path(value))))
    return list(folders)


def _named_in(data_yaml: Path) -> list[str]:
    try:
        settings = yaml.safe_load(data_yaml.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, yaml.YAMLError):
        settings = None
    if not isinstance(settings, dict):
        return [str(data_yaml.parent)]
    base = data_yaml.parent / str(settings.get("path") or ".")
    places = [item for name in ("train", "val") for item in _as_list(settings.get(name))]
    found = [str(base / place) for place in places if (base / place).is_dir()]
    return found or [str(base if base.is_dir() else data_yaml.parent)]


def _as_list(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)] if value else []


def _split_folder(root: Path, names: tuple[str, ...]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def _class_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files(folder: Path, deep: bool = True) -> list[str]:
    """Broken links too, which Path.rglob with is_file would hide."""
    found = []
    for place, _, names in os.walk(folder):
        found += [os.path.join(place, name) for name in names if not name.startswith(".")]
        if not deep:
            break
    return sorted(found)
