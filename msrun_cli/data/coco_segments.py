"""The box around a COCO segmentation, for annotations that have no bbox."""

from __future__ import annotations

import math
from typing import Any

_LARGEST_SIDE = 1 << 20  # pixels


def box_of_segmentation(segmentation: Any) -> list[float] | None:
    """[x, y, width, height] in pixels around polygons or a run-length mask; None for anything else.

    polygons: a list of lists x1, y1, x2, y2, ...
    mask: {"size": [height, width], "counts": run lengths, or COCO's text for them}
    """
    try:
        if isinstance(segmentation, dict):
            return _around_mask(segmentation["size"], segmentation["counts"])
        numbers = [float(number) for polygon in segmentation for number in polygon]
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    pairs = all(len(polygon) >= 6 and len(polygon) % 2 == 0 for polygon in segmentation)
    if not numbers or not pairs or not all(map(math.isfinite, numbers)):
        return None
    left, top = min(numbers[::2]), min(numbers[1::2])
    return [left, top, max(numbers[::2]) - left, max(numbers[1::2]) - top]


def _around_mask(size: Any, counts: Any) -> list[float] | None:
    """pycocotools trusts what it gets and runs past the end of memory otherwise, so all of it is looked at before."""
    height, width = (int(side) for side in size)
    if not 0 < height <= _LARGEST_SIDE or not 0 < width <= _LARGEST_SIDE:
        return None
    from pycocotools import mask

    if isinstance(counts, list):
        runs = [int(count) for count in counts]
        if min(runs, default=-1) < 0 or sum(runs) != height * width or sum(runs) >= 2**32:
            return None
        encoded = mask.frPyObjects({"size": [height, width], "counts": runs}, height, width)
    else:
        if not isinstance(counts, str) or not _decodes_to(counts, height * width):
            return None
        encoded = {"size": [height, width], "counts": counts.encode("ascii")}
    x, y, box_width, box_height = (float(number) for number in mask.toBbox(encoded))
    return [x, y, box_width, box_height] if box_width > 0 and box_height > 0 else None


def _decodes_to(text: str, pixels: int) -> bool:
    """Whether COCO's text holds runs that cover `pixels`: 5 bits a character from "0" on, a sixth means more follow,
    the fifth of the last is the sign, and from the fourth run on each is the difference to the one before the last
    (https://github.com/cocodataset/cocoapi, rleToString)."""
    runs: list[int] = []
    number = shift = 0
    for character in text:
        code = ord(character) - 48
        if not 0 <= code < 64 or shift > 30:
            return False
        number |= (code & 0x1F) << shift
        shift += 5
        if code & 0x20:
            continue
        if code & 0x10:
            number -= 1 << shift
        runs.append(number + (runs[-2] if len(runs) > 2 else 0))
        if runs[-1] < 0:
            return False
        number = shift = 0
    return shift == 0 and bool(runs) and sum(runs) == pixels < 2**32
