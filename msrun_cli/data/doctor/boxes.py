"""Checks of the boxes that the reader kept, and of what it counted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from msrun_cli.common.status import FAIL, PASS, WARN
from msrun_cli.data.doctor.checked import CheckedData, CheckedSplit
from msrun_cli.data.doctor.findings import Example, Finding, finding
from msrun_cli.data.scan import ImageLook

# Sentences of a reader's Tally look like "train: 3 boxes outside their image dropped".
_COUNTED = re.compile(r"^(?P<split>[^:]+): (?P<number>\d+) (?P<what>(?!images in |files in ).+)$", re.DOTALL)
_FAULT_WORDS = re.compile(r"\b(dropped|cut|left out|repeated|without a label file|ignored|unreadable|skipped)\b")
_MOST_BACKGROUND = 0.1  # part of the images; more is unusual, and often a sign of labels in the wrong place


def label_notes(data: CheckedData, looks: Mapping[str, Sequence[ImageLook]]) -> Finding:
    """Samples that the reader refused though their image is fine, and faults in the others as it counted them."""
    refused = [
        (split, path, reason)
        for split in data.splits
        for path, reason, index in split.refused
        if index is None or looks[split.name][index].fault is None
    ]
    cases = [
        (found, note) for note in data.notes if (found := _COUNTED.match(note)) and _FAULT_WORDS.search(found["what"])
    ]
    return finding(
        "labels",
        FAIL if refused else WARN,
        [
            *(
                Example(reason if path in reason else f"{path}: {reason}", split.name)
                for split, path, reason in refused
            ),
            *(Example(note) for _, note in cases),
        ],
        "what the reader refused" if refused else "what the reader dropped or changed",
        "correct the label files: what was refused or dropped is not trained on",
        count=len(refused) + sum(int(found["number"]) for found, _ in cases),
    )


def box_checks(data: CheckedData, image_size: int, tiny_pixels: float, covering: float) -> list[Finding]:
    """tiny_pixels: shortest side at `image_size`; covering: part of the image's area, 0..1."""
    tiny, large, doubled, ambiguous = [], [], [], []
    for split in data.splits:
        sides = split.boxes_xyxy[:, 2:] - split.boxes_xyxy[:, :2]
        sizes = split.sizes[split.owners].astype(np.float64)
        short = (sides * network_scale(sizes, image_size)[:, None]).min(axis=1, initial=np.inf)
        share = sides.prod(axis=1) / sizes.prod(axis=1)
        tiny += _examples(split, np.flatnonzero(short < tiny_pixels), data)
        large += _examples(split, np.flatnonzero((share >= covering) & ~split.crowds), data)
        same, other = _repeated(split)
        doubled += _examples(split, same, data)
        ambiguous += _examples(split, other, data)
    return [
        finding(
            "tiny_boxes",
            WARN,
            tiny,
            f"boxes with a side below {tiny_pixels:g} px at image_size={image_size}",
            "raise image_size, cut the images into tiles, or remove these boxes",
        ),
        finding(
            "covering_boxes",
            WARN,
            large,
            f"boxes that cover at least {covering:.0%} of their image",
            "look at them: often a whole image was labelled by mistake",
        ),
        finding(
            "duplicate_boxes",
            WARN,
            doubled,
            "boxes that repeat another one of the same class (same whole pixels)",
            "remove the repetitions: each counts as a missed object in the metric",
        ),
        finding(
            "ambiguous_boxes",
            WARN,
            ambiguous,
            "boxes on the same whole pixels as one of another class",
            "decide for one class, unless objects may have several",
        ),
    ]


def background(data: CheckedData) -> Finding:
    """Images without boxes; a warning only when there are many."""
    examples: list[Example] = []
    many = False
    for split in data.splits:
        empty = np.setdiff1d(np.flatnonzero(split.sizes.all(axis=1)), split.owners)
        many |= len(empty) > _MOST_BACKGROUND * len(split.records)
        paths = [(int(index), split.records[index].image_path) for index in empty]
        examples += [Example(f"{path} has no boxes", split.name, index, path) for index, path in paths]
    return finding(
        "background",
        WARN if many else PASS,
        examples,
        "images without boxes"
        + (f", more than {_MOST_BACKGROUND:.0%} of a split" if many else " (kept as background)"),
        "make sure that they show no objects and that their labels were found",
    )


def network_scale(sizes: np.ndarray, image_size: int) -> np.ndarray:
    """float64 (N,): factor of the letterbox for images of `sizes` (N, 2)."""
    return image_size / np.maximum(sizes.max(axis=1, initial=0), 1)


def _repeated(split: CheckedSplit) -> tuple[np.ndarray, np.ndarray]:
    """Indices of boxes that come again: with the same class, and with another class only."""
    places = np.column_stack([split.owners, np.rint(split.boxes_xyxy).astype(np.int64)])
    full = np.column_stack([places, split.classes])
    place_first, full_first = _first_of_each(places), _first_of_each(full)
    own = np.arange(len(places))
    same = full_first != own
    return np.flatnonzero(same), np.flatnonzero((place_first != own) & ~same)


def _first_of_each(rows: np.ndarray) -> np.ndarray:
    """int64 (N,): index of the first row that equals each row."""
    if not len(rows):
        return np.zeros(0, np.int64)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first[inverse.reshape(-1)]


def _examples(split: CheckedSplit, boxes: np.ndarray, data: CheckedData) -> list[Example]:
    found = []
    for box in boxes.tolist():
        owner = int(split.owners[box])
        path = split.records[owner].image_path
        x1, y1, x2, y2 = split.boxes_xyxy[box].tolist()
        name = data.class_names[split.classes[box]]
        text = f"{path}: {name} at {x1:.1f},{y1:.1f}, {x2 - x1:.1f} x {y2 - y1:.1f} px"
        found.append(Example(text, split.name, owner, path, (x1, y1, x2, y2)))
    return found
