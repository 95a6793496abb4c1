"""Fit a picture into a square without changing its aspect ratio."""

from __future__ import annotations

import math

import cv2
import numpy as np

from msrun_cli.transforms.sample import Context, Sample
from msrun_cli.transforms.tiles import Tile, Tiles

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
        self.fit = self.shrink = interpolation_of(shrink)
        self.enlarge = enlarge

    def __call__(self, sample: Sample, context: Context) -> Sample:
        return letterbox(sample, context.image_size, self.fill, self.shrink, self.enlarge)


def letterbox(
    sample: Sample, size: int, fill: int = 114, shrink: int = cv2.INTER_LINEAR, enlarge: bool = True
) -> Sample:
    """The sample on a (size, size) square, not yet drawn. Picture and boxes keep their aspect ratio; the geometry
    follows."""
    sample = shrunk(sample, size, shrink)
    (height, width), scale = sample.size, 1.0
    if enlarge:
        height, width, scale = fitted(height, width, size)
    # An odd remainder puts the extra pixel at the right or bottom.
    left, top = (size - width) // 2, (size - height) // 2
    picture = Tiles(size, size, fill, (Tile(sample.image, left, top, width, height),))
    boxes_xyxy = sample.boxes_xyxy * np.float32(scale) + np.array([left, top, left, top], np.float32)
    # With an odd remainder the geometry states equal bars, half a pixel off: the convention behind published metrics.
    middle = (size - width) / 2, (size - height) / 2
    geometry = None if sample.geometry is None else sample.geometry.then(scale, *middle)
    return Sample(picture, boxes_xyxy, sample.labels, geometry)


def square(sample: Sample, size: int) -> Sample:
    """The sample as (size, size): letterboxed if it has another shape."""
    return sample if sample.size == (size, size) else letterbox(sample, size)


def shrunk(sample: Sample, size: int, interpolation: int) -> Sample:
    """The sample with long side `size` if it was longer; the very same one if not."""
    if max(sample.size) <= size:
        return sample
    height, width, scale = fitted(*sample.size, size)
    image = cv2.resize(sample.image, (width, height), interpolation=interpolation)
    geometry = None if sample.geometry is None else sample.geometry.then(scale, 0.0, 0.0)
    return Sample(image, sample.boxes_xyxy * np.float32(scale), sample.labels, geometry)


def fitted(height: int, width: int, size: int) -> tuple[int, int, float]:
    """(height, width) after the long side became `size`, and the ratio new / old."""
    scale = size / max(height, width)
    # rounded up, as YOLOv5 does: published metrics rest on the same pixels
    return min(size, math.ceil(height * scale)), min(size, math.ceil(width * scale)), scale


def interpolation_of(name: str) -> int:
    if name not in INTERPOLATIONS:
        raise ValueError(f"interpolation {name!r} is unknown: use one of {', '.join(INTERPOLATIONS)}")
    return INTERPOLATIONS[name]
