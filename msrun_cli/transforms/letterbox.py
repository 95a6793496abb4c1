"""Fit a picture into a square without changing its aspect ratio."""

from __future__ import annotations

import math

import cv2
import numpy as np

from msrun_cli.transforms.sample import Context, Sample

INTERPOLATIONS = {"linear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA, "nearest": cv2.INTER_NEAREST}


class Letterbox:
    """Resize the long side to the image size and centre the picture on a square of grey.

    fill: grey level of the bars, 0..255
    shrink: interpolation when the picture gets smaller, "area" (best quality) or "linear" (faster when shrinking by a
        ratio that is not whole); enlarging is always linear
    enlarge: scale smaller pictures up to the square too; False leaves them at their size, in the middle
    """

    def __init__(self, *, fill: int = 114, shrink: str = "area", enlarge: bool = True) -> None:
        self.fill = fill
        self.shrink = interpolation_of(shrink)
        self.enlarge = enlarge

    def __call__(self, sample: Sample, context: Context) -> Sample:
        return letterbox(sample, context.image_size, self.fill, self.shrink, self.enlarge)


def letterbox(
    sample: Sample, size: int, fill: int = 114, shrink: int = cv2.INTER_LINEAR, enlarge: bool = True
) -> Sample:
    """The sample on a (size, size) square. Picture and boxes keep their aspect ratio; the geometry follows."""
    image, scale = sample.image, 1.0
    if enlarge or max(image.shape[:2]) > size:
        image, scale = resize_long_side(image, size, shrink)
    height, width = image.shape[:2]
    # An odd remainder puts the extra pixel at the right or bottom.
    left, top = (size - width) // 2, (size - height) // 2
    if (height, width) != (size, size):
        canvas = np.full((size, size, 3), fill, np.uint8)
        canvas[top : top + height, left : left + width] = image
        image = canvas
    boxes_xyxy = sample.boxes_xyxy * np.float32(scale) + np.array([left, top, left, top], np.float32)
    # With an odd remainder the geometry states equal bars, half a pixel off: the convention behind published metrics.
    middle = (size - width) / 2, (size - height) / 2
    geometry = None if sample.geometry is None else sample.geometry.then(scale, *middle)
    return Sample(image, boxes_xyxy, sample.labels, geometry)


def resize_long_side(image: np.ndarray, size: int, shrink: int = cv2.INTER_LINEAR) -> tuple[np.ndarray, float]:
    """Image with long side `size`, and the ratio new / old. The very same array when it has that size already."""
    height, width = image.shape[:2]
    scale = size / max(height, width)
    if scale == 1.0:
        return image, 1.0
    # rounded up, as YOLOv5 does: published metrics rest on the same pixels
    new_width, new_height = min(size, math.ceil(width * scale)), min(size, math.ceil(height * scale))
    interpolation = shrink if scale < 1.0 else cv2.INTER_LINEAR
    return cv2.resize(image, (new_width, new_height), interpolation=interpolation), scale


def interpolation_of(name: str) -> int:
    if name not in INTERPOLATIONS:
        raise ValueError(f"interpolation {name!r} is unknown: use one of {', '.join(INTERPOLATIONS)}")
    return INTERPOLATIONS[name]
