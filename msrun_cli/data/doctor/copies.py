"""Checks for images that come again: inside a split, and in both (leakage: the metric then rewards memory)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from msrun_cli.common.status import FAIL, WARN
from msrun_cli.data.doctor.checked import CheckedData, CheckedSplit
from msrun_cli.data.doctor.findings import Example, Finding, finding, skipped
from msrun_cli.data.fingerprints import groups_of, identical_files, near_pairs, thumbnails
from msrun_cli.data.scan import ImageLook

Advance = Callable[[int], None] | None


@dataclass(frozen=True)
class _Item:
    split: CheckedSplit
    index: int

    @property
    def path(self) -> str:
        return self.split.records[self.index].image_path

    @property
    def classes(self) -> tuple[int, ...]:
        return tuple(sorted(self.split.classes[self.split.owners == self.index].tolist()))


def copy_checks(
    data: CheckedData, looks: Mapping[str, Sequence[ImageLook]], near: bool, workers: int, advance: Advance = None
) -> list[Finding]:
    """near: look for near-duplicates too, for which every image is decoded (fingerprints.py defines them).

    advance: called with the number of images done since the last call; all in all once per image if near, else never
    """
    items = [_Item(split, index) for split in data.splits for index in _readable(looks[split.name])]
    identical = identical_files([item.path for item in items], workers)
    found = [
        *_by_place("duplicates", "leakage", items, identical, FAIL, "identical files"),
        _contradictions(data, items, identical),
    ]
    if not near:
        return [*found, *(skipped(check, "near_duplicates=false") for check in ("near_duplicates", "near_leakage"))]
    sizes = [(look.width, look.height) for item in items for look in [looks[item.split.name][item.index]]]
    thumbs = thumbnails([item.path for item in items], sizes, workers, advance)
    # Of identical files one is enough here, or each near-duplicate of them would be told several times.
    repeated = [place for group in identical for place in group[1:]]
    thumbs[repeated] = np.nan
    alike = groups_of((int(a), int(b)) for a, b in near_pairs(thumbs))
    return [*found, *_by_place("near_duplicates", "near_leakage", items, alike, WARN, "nearly the same images")]


def _readable(looks: Sequence[ImageLook]) -> list[int]:
    return [index for index, look in enumerate(looks) if look.fault is None or look.fault.kind == "size"]


def _by_place(
    inside: str, across: str, items: Sequence[_Item], groups: Sequence[Sequence[int]], leak_status: str, words: str
) -> list[Finding]:
    """Two findings: groups with several images in one split, groups with images in both."""
    doubled, leaked = [], []
    for group in groups:
        members = [items[place] for place in group]
        names = {item.split.name for item in members}
        if len(names) > 1:
            leaked.append(_example(sorted(members, key=lambda item: item.split.name != "val")))
        for name in sorted(names):
            of_split = [item for item in members if item.split.name == name]
            if len(of_split) > 1:
                doubled.append(_example(of_split))
    return [
        finding(
            inside, WARN, doubled, f"groups of {words} inside a split", "keep one of each, unless the weight is meant"
        ),
        finding(
            across,
            leak_status,
            leaked,
            f"groups of {words} in train and in val",
            "remove them from one split: the metric is too good otherwise",
        ),
    ]


def _example(members: Sequence[_Item]) -> Example:
    shown = " = ".join(f"{item.split.name}: {item.path}" for item in members[:3])
    more = f" and {len(members) - 3} more" if len(members) > 3 else ""
    return _about(members, shown + more)


def _about(members: Sequence[_Item], text: str) -> Example:
    first = members[0]
    return Example(text, first.split.name, first.index, first.path, twin=members[1].path)


def _contradictions(data: CheckedData, items: Sequence[_Item], groups: Sequence[Sequence[int]]) -> Finding:
    if data.task == "files":
        return skipped("contradictions", "without annotations")
    examples = []
    for group in groups:
        members = [items[place] for place in group]
        if len({item.classes for item in members}) > 1:
            shown = " and ".join(f"{item.path} ({_named(data, item.classes)})" for item in members[:3])
            examples.append(_about(members, shown))
    return finding(
        "contradictions",
        WARN,
        examples,
        "groups of identical files with different classes",
        "decide which annotation is right and remove the others",
    )


def _named(data: CheckedData, classes: Sequence[int]) -> str:
    names = [data.class_names[label] for label in classes[:4]]
    return ", ".join(names) + (" ..." if len(classes) > 4 else "") if names else "nothing"
