"""What a transform gets and gives. Transforms see numpy only; they never import the data package or MindSpore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from msrun_cli.transforms.tiles import Tiles


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


class Sample:
    """One picture and its boxes.

    image: uint8 (H, W, 3) RGB, or Tiles, which are drawn when a step asks for `image`. It is read-only where other
        samples share the pixels: a step that wants to write copies it first (`own_image`).
    boxes_xyxy: float32 (N, 4), pixels of `image`
    labels: int64 (N,), class index
    geometry: None once the picture is no longer a resized and shifted copy of one file
    margin: pixels on each side that lie outside the view (a mosaic gives a canvas larger than the view, so that an
        affine transform finds picture where it would else find fill); a step that cuts them off sets it to 0
    """

    __slots__ = ("_picture", "boxes_xyxy", "labels", "geometry", "margin")

    def __init__(
        self,
        image: np.ndarray | Tiles,
        boxes_xyxy: np.ndarray,
        labels: np.ndarray,
        geometry: Geometry | None = None,
        margin: int = 0,
    ) -> None:
        self._picture = image
        self.boxes_xyxy, self.labels = boxes_xyxy, labels
        self.geometry, self.margin = geometry, margin

    @property
    def image(self) -> np.ndarray:
        return self.drawn()

    @image.setter
    def image(self, image: np.ndarray | Tiles) -> None:
        self._picture = image

    @property
    def tiles(self) -> Tiles | None:
        """The picture as long as it is not drawn."""
        return self._picture if isinstance(self._picture, Tiles) else None

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of `image`, without drawing it."""
        picture = self._picture
        return (picture.height, picture.width) if isinstance(picture, Tiles) else picture.shape[:2]

    def drawn(self, out: np.ndarray | None = None) -> np.ndarray:
        """`image`, drawn into `out` if it has yet to be drawn and `out` has its shape."""
        if isinstance(self._picture, Tiles):
            self._picture = self._picture.draw(out)
        return self._picture

    def own_image(self, out: np.ndarray | None = None) -> np.ndarray:
        """`image`, which may be written to: a copy where it was read-only."""
        if not self.drawn(out).flags.writeable:
            self._picture = self._picture.copy()  # type: ignore[union-attr]
        return self._picture  # type: ignore[return-value]


@dataclass(slots=True)
class Context:
    """What a transform may use besides its sample.

    rng: the only allowed source of randomness
    read: gives the untransformed sample of an index in [0, count), for steps that merge several pictures. Pictures
        longer than image_size may come shrunk to it when the chain's first step shrinks them anyway (Chain.fit).
    image_size: side in pixels of the square that the chain has to give
    choose: which records a picture may be merged with: (rng, number) -> indices. None = uniform over all records.
    out: memory (image_size, image_size, 3) where the last picture is wanted. A step that draws a new picture of that
        size may draw it there, and nothing else may be kept there.
    epoch: the epoch that the picture is for, from 0
    before: the steps of the chain before the running one, applied to a sample
    """

    rng: np.random.Generator
    read: Callable[[int], Sample]
    count: int
    image_size: int
    choose: Callable[[np.random.Generator, int], Sequence[int] | np.ndarray] | None = None
    out: np.ndarray | None = None
    epoch: int = 0
    before: Callable[[Sample], Sample] | None = None

    def partners(self, number: int) -> list[Sample]:
        """Randomly chosen samples to merge with, untransformed."""
        if self.choose is None:
            chosen: Sequence[int] | np.ndarray = self.rng.integers(0, self.count, size=number)
        else:
            chosen = self.choose(self.rng, number)
        return [self.read(int(index)) for index in chosen]

    def another(self) -> Sample:
        """A random record, transformed by the steps before the running one."""
        (partner,) = self.partners(1)
        return partner if self.before is None else self.before(partner)


class Transform(Protocol):
    """A step of a chain. It may change the sample it gets.

    Attribute `merges`: how many pictures it joins (else 1). Attribute `fit`: see Chain.fit.
    """

    def __call__(self, sample: Sample, context: Context) -> Sample: ...
