"""What a transform gets and gives. Transforms see numpy only; they never import the data package or MindSpore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where the pixels of a file went: x_net = x_file * scale + pad_x, y_net = y_file * scale + pad_y.

    width, height: pixels of the file
    """

    scale: float
    pad_x: float
    pad_y: float
    width: int
    height: int

    @classmethod
    def identity(cls, width: int, height: int) -> Geometry:
        return cls(1.0, 0.0, 0.0, width, height)

    def then(self, scale: float, pad_x: float, pad_y: float) -> Geometry:
        """The geometry after one more resize by `scale` and shift by (`pad_x`, `pad_y`) pixels."""
        return Geometry(
            self.scale * scale, self.pad_x * scale + pad_x, self.pad_y * scale + pad_y, self.width, self.height
        )


@dataclass(slots=True)
class Sample:
    """One picture and its boxes.

    image: uint8 (H, W, 3) RGB
    boxes_xyxy: float32 (N, 4), pixels of `image`
    labels: int64 (N,), class index
    geometry: None once the picture is no longer a resized and shifted copy of one file
    margin: pixels on each side that lie outside the view (a mosaic gives a canvas larger than the view, so that an
        affine transform finds picture where it would else find fill); a step that cuts them off sets it to 0
    """

    image: np.ndarray
    boxes_xyxy: np.ndarray
    labels: np.ndarray
    geometry: Geometry | None = None
    margin: int = 0


@dataclass(slots=True)
class Context:
    """What a transform may use besides its sample.

    rng: the only allowed source of randomness
    read: gives the untransformed sample of an index in [0, count), for steps that merge several pictures
    image_size: side in pixels of the square that the chain has to give
    """

    rng: np.random.Generator
    read: Callable[[int], Sample]
    count: int
    image_size: int


class Transform(Protocol):
    """A step of a chain. It may change the sample it gets. Attribute `merges`: how many pictures it joins (else 1)."""

    def __call__(self, sample: Sample, context: Context) -> Sample: ...
