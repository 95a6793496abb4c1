"""Where a dataset in YOLO's format keeps its images, and what its classes are called."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from msrun_cli.common.errors import DataError
from msrun_cli.data.images import SUFFIXES
from msrun_cli.data.label_files import FileList
from msrun_cli.data.yolo_labels import label_path

_VAL = ("val", "valid", "validation")
_NAME_FILES = ("classes.txt", "obj.names")


@dataclass(frozen=True)
class YoloFiles:
    """lists: by the name of the split, at least one."""

    class_names: tuple[str, ...]
    lists: dict[str, FileList]


def find_files(source: str, names: Sequence[str] | None) -> YoloFiles:
    """The files that a data.yaml, a folder or a list file leads to; see `yolo.read_yolo`. Raises DataError."""
    path = Path(source)
    if path.is_dir() and names is None and (path / "data.yaml").is_file():
        path = path / "data.yaml"
    if path.is_dir():
        sources = {name: [folder] for name, folder in _split_folders(path).items()}
        class_names = _beside(names, path, source)
    elif path.suffix.lower() == ".txt" and path.is_file():
        sources = {"train": [path]}
        val = [file for file in (path.with_name(f"{name}.txt") for name in _VAL) if file.is_file()]
        if path.stem == "train" and val:
            sources["val"] = val[:1]
        class_names = _beside(names, path.parent, source)
    else:
        settings = _load(path)
        base = _base(settings, path)
        sources = {name: [base / part for part in _as_list(settings[name])] for name in _named_splits(settings, path)}
        class_names = tuple(names) if names else _class_names(settings, str(path))
    return YoloFiles(class_names, {name: _file_list(parts, name) for name, parts in sources.items()})


def _split_folders(folder: Path) -> dict[str, Path]:
    """The image folders of the splits below `folder`; without any, all of it is train."""
    found = {}
    for name, aliases in (("train", ("train",)), ("val", _VAL)):
        likely = [Path(*parts) for alias in aliases for parts in (("images", alias), (alias, "images"), (alias,))]
        there = [folder / part for part in likely if (folder / part).is_dir()]
        if there:
            found[name] = there[0]
    return found or {"train": folder}


def _beside(names: Sequence[str] | None, folder: Path, source: str) -> tuple[str, ...]:
    """`names`, or the lines of a file with class names in the folder, in its labels or above."""
    if names:
        return tuple(map(str, names))
    for place in (folder, folder / "labels", Path(label_path(str(folder / "x"))).parent, folder.parent):
        for file in (*(place / name for name in _NAME_FILES), *sorted(place.glob("*.names"))):
            if file.is_file():
                try:
                    lines = file.read_text(encoding="utf-8-sig").split("\n")
                except (OSError, UnicodeDecodeError) as error:
                    raise DataError(f"{file} cannot be read as a list of class names: {error}.") from error
                if found := tuple(line.strip() for line in lines if line.strip()):
                    return found
    raise DataError(
        f"dataset.data_yaml={source} leads to images, but not to the names of their classes: set "
        f"dataset.names=[first,second,...], or put {' or '.join(_NAME_FILES)} beside them, a name per line."
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise DataError(f"dataset.data_yaml={path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path} is not valid YAML: {error}.") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} must hold keys: path, train, val, names.")
    return content


def _named_splits(settings: dict[str, Any], path: Path) -> list[str]:
    found = [name for name in ("train", "val") if settings.get(name)]
    if not found:
        raise DataError(f"{path} names neither train nor val images.")
    return found


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


def _file_list(sources: list[Path], name: str) -> FileList:
    """The images of all sources, each file once."""
    paths = [path for source in sources for path in _image_paths(source, name)]
    first_of: dict[str, str] = {}
    for path in paths:
        first_of.setdefault(os.path.normpath(path), path)
    unique = list(first_of.values())
    files = FileList(unique, [label_path(path) for path in unique], ", ".join(map(str, sources)))
    files.said.add("repeated image entries dropped", len(paths) - len(unique))
    return files


def _image_paths(source: Path, name: str) -> list[str]:
    """The images of a folder (subfolders too) or of a list file."""
    if source.is_dir():
        paths = sorted(str(path) for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
    elif source.is_file():
        try:
            lines = source.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{name}: {source} is neither a folder of images nor a text file that lists them."
            ) from error
        listed = [line.strip() for line in lines if line.strip()]
        base = _base_of_list(source, listed)
        paths = [str(base / line) for line in listed]
    else:
        raise DataError(f"{name}: {source} does not exist. It should be a folder of images or a file that lists them.")
    if not paths:
        raise DataError(f"{name}: no images in {source} (looked for {', '.join(sorted(SUFFIXES))}).")
    return paths


def _base_of_list(file: Path, listed: list[str]) -> Path:
    """Lines are relative to the list's folder; some tools write them relative to its parent or to where they run."""
    for base in (file.parent, file.parent.parent, Path()):
        if any((base / line).is_file() for line in listed[:8]):
            return base
    return file.parent
