"""Where a COCO dataset keeps its files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msrun_cli.common.errors import DataError
from msrun_cli.data.boxes import first_few

# Other names under which exported datasets store a split.
_ALIASES = {"train": ("train",), "val": ("val", "valid", "validation")}


@dataclass
class SplitFiles:
    """The annotation file of a split and the folder its file names start from.

    candidates: folders to choose from; after `settle`, `images` is the one that has the images
    """

    name: str
    annotations: Path
    candidates: tuple[Path, ...]
    images: Path = field(init=False)
    _listed: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.images = self.candidates[0]

    def path_of(self, file_name: str) -> str:
        return os.path.join(self.images, file_name)

    def settle(self, file_names: Sequence[str]) -> None:
        """Choose the folder that has the images. DataError with the first paths when none of them exists anywhere."""
        # A few names tell the folder; looking for all of them in each candidate would be slow for a large dataset.
        few = file_names[:: max(1, len(file_names) // 8)]
        for names in (few, file_names):
            found = {folder: sum(self._exists(folder, name) for name in names) for folder in self.candidates}
            self.images = max(self.candidates, key=lambda folder: found[folder])
            if found[self.images] or not names:
                return
        raise DataError(
            f"none of the {len(file_names)} images of {self.annotations} exists:\n"
            f"{first_few(self.path_of(name) for name in file_names)}\n"
            f"Looked in {', '.join(str(folder) for folder in self.candidates)}. "
            f"Set dataset.{self.name}.images to the folder of the images."
        )

    def _exists(self, folder: Path, name: str) -> bool:
        # One listing per folder instead of one look-up per file: much faster on network file systems.
        directory, base = os.path.split(os.path.join(folder, name))
        if directory not in self._listed:
            try:
                self._listed[directory] = frozenset(os.listdir(directory))
            except OSError:
                self._listed[directory] = frozenset()
        return base in self._listed[directory]


def find_split(root: Path, name: str, wanted: Mapping[str, str | None] | None) -> SplitFiles | None:
    """The files of split `name` ("train", "val"), or None if there is no annotation file and none was asked for."""
    chosen = {key: str(value) for key, value in (wanted or {}).items() if value is not None}
    unknown = sorted(chosen.keys() - {"images", "annotations"})
    if unknown:
        raise DataError(f"dataset.{name} has no key {unknown[0]!r}: use images and annotations.")
    annotations = _wanted_annotations(root, name, chosen.get("annotations")) or _find_annotations(root, name)
    if annotations is None:
        if chosen:
            raise DataError(f"dataset.{name}.images is set, but {root} has no annotations of {name}: set them too.")
        return None
    if "images" in chosen:
        folder = _below(root, chosen["images"])
        if not folder.is_dir():
            raise DataError(f"dataset.{name}.images={chosen['images']} is not a folder (also looked in {root}).")
        return SplitFiles(name, annotations, (folder,))
    return SplitFiles(name, annotations, _image_folders(root, name, annotations))


def _wanted_annotations(root: Path, name: str, wanted: str | None) -> Path | None:
    if wanted is None:
        return None
    path = _below(root, wanted)
    if not path.is_file():
        raise DataError(f"dataset.{name}.annotations={wanted} is not a file (also looked in {root}).")
    return path


def _below(root: Path, wanted: str) -> Path:
    return root / wanted if (root / wanted).exists() else Path(wanted)


def _find_annotations(root: Path, name: str) -> Path | None:
    for folder in (root / "annotations", root):
        # instances_train.json, instances_train2017.json, ...: the shortest name, of equally long ones the newest year.
        files = sorted(folder.glob(f"instances_{name}*.json"), reverse=True)
        if files:
            return min(files, key=lambda file: len(file.name))
    for alias in _ALIASES[name]:
        if (root / alias / "_annotations.coco.json").is_file():
            return root / alias / "_annotations.coco.json"
    return None


def _image_folders(root: Path, name: str, annotations: Path) -> tuple[Path, ...]:
    """Folders that may hold the images, likeliest first; at least one."""
    suffix = annotations.stem.removeprefix("instances_")
    names = dict.fromkeys((suffix, *_ALIASES[name], f"{name}2017", f"{name}2014"))
    likely = [base / folder for folder in names for base in (root / "images", root)]
    # File names may start with the folder (train2017/1.jpg), and some exports keep the JSON beside the images.
    folders = [*likely, annotations.parent, root / "images", root]
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))
