"""Figures of a dataset: how many, how large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from msrun_cli.data.doctor.checked import CheckedData, CheckedSplit
from msrun_cli.data.doctor.classes import class_counts
from msrun_cli.data.scan import ImageLook

# COCO: areas in pixels of the file.
SMALL, LARGE = 32**2, 96**2
_MOST_SIZES = 5


def statistics(data: CheckedData, looks: Mapping[str, Sequence[ImageLook]]) -> dict[str, Any]:
    """For each split its numbers (split_statistics), and the table of classes; plain values for JSON."""
    counts = {split.name: class_counts(split, len(data.class_names)) for split in (data.train, data.val)}
    return {
        "splits": {
            split.name: split_statistics(split, looks[split.name], data.task == "detection") for split in data.splits
        },
        "classes": [
            {"name": name, **{split: int(of_class[index]) for split, of_class in counts.items()}}
            for index, name in enumerate(data.class_names)
        ],
    }


def split_statistics(split: CheckedSplit, looks: Sequence[ImageLook], boxes: bool) -> dict[str, Any]:
    """Plain values: images, image_sizes (the commonest, with counts), formats.

    boxes: also the number of boxes and, apart, of crowds, images_without_boxes, boxes_per_image (min, median, max), and
    box_sizes: COCO's small, medium, large by area in pixels of the file.
    """
    found: dict[str, Any] = {"images": len(split.records)}
    if boxes:
        single = ~split.crowds
        per_image = np.bincount(split.owners[single], minlength=len(split.records))
        areas = (split.boxes_xyxy[single, 2:] - split.boxes_xyxy[single, :2]).prod(axis=1)
        found |= {
            "boxes": int(single.sum()),
            "crowds": int(split.crowds.sum()),
            "images_without_boxes": len(np.setdiff1d(np.flatnonzero(split.sizes.all(axis=1)), split.owners)),
            "boxes_per_image": _spread(per_image),
            "box_sizes": {
                "small": int((areas < SMALL).sum()),
                "medium": int(((areas >= SMALL) & (areas <= LARGE)).sum()),
                "large": int((areas > LARGE).sum()),
            },
        }
    sizes = Counter((look.width, look.height) for look in looks if look.width)
    formats = Counter(look.format for look in looks if look.format)
    common = [
        {"width": width, "height": height, "images": number}
        for (width, height), number in sizes.most_common(_MOST_SIZES)
    ]
    sides = np.array(list(sizes), np.int64).reshape(-1, 2)
    found["image_sizes"] = {"different": len(sizes), "commonest": common}
    if len(sides):
        found["image_sizes"] |= {"smallest_side": int(sides.min()), "largest_side": int(sides.max())}
    found["formats"] = dict(formats.most_common())
    return found


def _spread(counts: np.ndarray) -> dict[str, float]:
    if not len(counts):
        return {"min": 0, "median": 0, "max": 0}
    return {"min": int(counts.min()), "median": float(np.median(counts)), "max": int(counts.max())}
