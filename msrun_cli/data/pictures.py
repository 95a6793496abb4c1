"""Pixels of records by index, as large as the transforms use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from msrun_cli.data.images import read_rgb
from msrun_cli.data.pixel_cache import PixelCache, open_cache
from msrun_cli.data.recent import RecentlyRead
from msrun_cli.data.records import Record, Split
from msrun_cli.transforms.letterbox import fitted
from msrun_cli.transforms.sample import Geometry, Sample


@dataclass(frozen=True, slots=True)
class Reading:
    """How often and how large files are decoded. Only `reduced` changes pixels.

    partner_window: see TrainSamples, or "auto", see data.detection.partner_window_of
    cache: "none", "ram" or "disk": where decoded pictures are kept between epochs
    cache_limit_gib: GiB; None = half of what is free
    reduced: JPEGs of at least twice the wanted size are decoded at 1/2, 1/4 or 1/8 of their size
    """

    partner_window: int | str | None = None
    cache: str = "none"
    cache_limit_gib: float | None = None
    reduced: bool = False


AS_IN_THE_FILES = Reading()  # each picture decoded whole whenever it is wanted


@dataclass(frozen=True, slots=True)
class Fit:
    """Pictures with a side longer than `side` pixels are shrunk to it with `interpolation` (OpenCV's number), the first
    factor of 2, 4 or 8 by the decoder if `reduced`."""

    side: int
    interpolation: int
    reduced: bool = False


class Pictures:
    """Samples as the transforms' `read` gives them: the picture of a record with the boxes that may be trained on.

    fit: None = as in the file
    recent_bytes: decoded pictures that are kept for their next use; 0 = none
    cache: pictures kept between epochs
    """

    def __init__(
        self,
        records: Sequence[Record],
        fit: Fit | None = None,
        *,
        recent_bytes: int = 0,
        cache: PixelCache | None = None,
    ) -> None:
        self.records = records
        self.fit = fit
        self.cache = cache
        self._recent = RecentlyRead(self._decoded, recent_bytes)

    def __getitem__(self, index: int) -> Sample:
        """Without crowds. The image may be read-only."""
        record = self.records[index]
        image = self.cache[index] if self.cache is not None and index in self.cache else self._recent[index]
        single = ~record.iscrowd
        boxes_xyxy, geometry = record.boxes_xyxy[single], Geometry.identity(record.width, record.height)
        longest = max(record.width, record.height)
        if self.fit is not None and longest > self.fit.side:
            scale = self.fit.side / longest
            boxes_xyxy, geometry = boxes_xyxy * np.float32(scale), geometry.then(scale, 0.0, 0.0)
        return Sample(image, boxes_xyxy, record.labels[single], geometry)

    def decoding(self) -> tuple[object, str, str]:
        """The function that decodes, for data.stage_times."""
        return self._recent, "_read", "decode"

    def _decoded(self, index: int) -> np.ndarray:
        record, fit = self.records[index], self.fit
        if fit is None:
            image = read_rgb(record.image_path, record.width, record.height)
        else:
            factor = reduction(max(record.width, record.height), fit.side) if fit.reduced else 1
            image = read_rgb(record.image_path, record.width, record.height, factor)
            if max(record.width, record.height) > fit.side:
                height, width, _ = fitted(record.height, record.width, fit.side)
                if image.shape[:2] != (height, width):
                    image = cv2.resize(image, (width, height), interpolation=fit.interpolation)
        return image if self.cache is None else self.cache.keep(index, image)


def reduction(longest: int, side: int) -> int:
    """The largest of 1, 2, 4 and 8 by which a picture with this long side stays at least `side` long."""
    return next(factor for factor in (8, 4, 2, 1) if longest >= factor * side or factor == 1)


def kept_shapes(records: Sequence[Record], fit: Fit | None) -> np.ndarray:
    """int64 (n, 2): height and width of each picture as it is read."""
    shapes = np.array([(record.height, record.width) for record in records], np.int64).reshape(-1, 2)
    if fit is None:
        return shapes
    for row in np.flatnonzero(shapes.max(axis=1, initial=0) > fit.side):
        shapes[row] = fitted(*shapes[row].tolist(), fit.side)[:2]
    return shapes


def cache_of(split: Split, fit: Fit | None, reading: Reading) -> PixelCache | None:
    """What dataset.cache asks for."""
    if reading.cache == "none":
        return None
    setting = [] if fit is None else [fit.side, fit.interpolation, fit.reduced]
    return open_cache(
        reading.cache,
        split.name,
        kept_shapes(split.records, fit),
        reading.cache_limit_gib,
        lambda: (record.image_path for record in split.records),
        setting,
    )
