"""Where a dataset in Pascal VOC's format keeps its files."""

from __future__ import annotations

import os
from pathlib import Path

from msrun_cli.common.errors import DataError
from msrun_cli.data.images import SUFFIXES
from msrun_cli.data.label_files import FileList, SampleError
from msrun_cli.data.voc_xml import file_name_in

_IMAGE_FOLDERS = ("JPEGImages", "images")
_LIST_FOLDER = Path("ImageSets", "Main")
# Lists that make up a split, likeliest first; the first that exists is taken.
_LISTS = {"train": ("train", "trainval"), "val": ("val", "test")}
_FOLDERS = {"train": ("train",), "val": ("val", "valid", "validation")}


def find_lists(root: Path, wanted: dict[str, str | None]) -> dict[str, FileList]:
    """{split: files}, at least one split.

    wanted: by split, the name of the list below ImageSets/Main ("trainval"), or None = found
    Raises DataError when there is nothing to read.
    """
    bases = _bases(root)
    found = {name: _listed(bases, name, wanted[name]) for name in ("train", "val")}
    lists = {name: files for name, files in found.items() if files is not None}
    if not lists:
        lists = _folders(root, bases)
    for name, files in lists.items():
        if not files.labels:
            raise DataError(f"{name}: no annotations (.xml) in {files.where}.")
    return lists


def _bases(root: Path) -> list[Path]:
    """The folders with an Annotations folder: `root`, or VOC2007, VOC2012, ... in it or in its VOCdevkit."""
    if not root.is_dir():
        raise DataError(
            f"dataset.root={root} is not a folder. It should hold Annotations and JPEGImages, a VOCdevkit with such "
            "folders, or XML files beside their images."
        )
    if (root / "Annotations").is_dir():
        return [root]
    found = [path.parent for top in (root, root / "VOCdevkit") for path in sorted(top.glob("*/Annotations"))]
    return [path for path in found if path.name not in ("train", "val", "valid", "test")]


def _listed(bases: list[Path], split: str, wanted: str | None) -> FileList | None:
    """The images that the lists of all bases name; each line begins with one, without a suffix."""
    for name in _LISTS[split] if wanted is None else (wanted,):
        files = [base / _LIST_FOLDER / f"{name}.txt" for base in bases]
        there = [file for file in files if file.is_file()]
        if there:
            return _joined([_of_list(file) for file in there], ", ".join(map(str, there)))
    if wanted is not None:
        places = ", ".join(str(base / _LIST_FOLDER) for base in bases) or "no Annotations folder"
        raise DataError(f"dataset.{split}_set={wanted}: there is no {wanted}.txt (looked in {places}).")
    return None


def _of_list(file: Path) -> FileList:
    base = file.parents[2]
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as a list of images: {error}.") from error
    names = [line.split()[0] for line in lines if line.strip()]
    labels = [str(base / "Annotations" / f"{name}.xml") for name in names]
    return _pair(labels, base)


def _folders(root: Path, bases: list[Path]) -> dict[str, FileList]:
    """Without lists: train/ and val/ with XML somewhere in them, or everything below `root` as train."""
    found = {}
    for name, aliases in _FOLDERS.items():
        there = [root / alias for alias in aliases if (root / alias).is_dir() and _xml_below(root / alias)]
        if there:
            found[name] = _pair(_xml_below(there[0]), there[0])
    if not found:
        tops = bases or [root]
        found["train"] = _joined([_pair(_xml_below(top), top) for top in tops], ", ".join(map(str, tops)))
    return found


def _xml_below(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*") if path.suffix.lower() == ".xml")


def _pair(labels: list[str], base: Path) -> FileList:
    """Each annotation with its image: the same name beside it, in `base`'s image folders, or the <filename> there."""
    listings: dict[Path, dict[str, str]] = {}

    def stems(folder: Path) -> dict[str, str]:
        if folder not in listings:
            names = sorted(os.listdir(folder)) if folder.is_dir() else []
            listings[folder] = {os.path.splitext(n)[0]: n for n in names if Path(n).suffix.lower() in SUFFIXES}
        return listings[folder]

    def image_of(label: str) -> str:
        stem, folder = Path(label).stem, Path(label).parent
        folders = [folder, *(top / name for top in (folder.parent, base) for name in _IMAGE_FOLDERS)]
        for place in folders:
            if stem in stems(place):
                return str(place / stems(place)[stem])
        named = _named(label)
        there = [place / named for place in folders if named and (place / named).is_file()]
        first = next((place for place in folders[1:] if place.is_dir()), folder)
        return str(there[0] if there else first / (named or f"{stem}.jpg"))

    unique = list(dict.fromkeys(labels))
    files = FileList([image_of(label) for label in unique], unique, str(base))
    files.said.add("repeated image entries dropped", len(labels) - len(unique))
    return files


def _named(label: str) -> str:
    try:
        return file_name_in(label)
    except SampleError:
        return ""  # said when the annotation is read


def _joined(parts: list[FileList], where: str) -> FileList:
    files = FileList(
        [path for part in parts for path in part.images], [p for part in parts for p in part.labels], where
    )
    for part in parts:
        files.said.counts.update(part.said.counts)
    return files
