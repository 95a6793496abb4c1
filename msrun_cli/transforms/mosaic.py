"""Join four pictures around one point (Bochkovskiy et al., YOLOv4, arXiv:2004.10934, section 3.3)."""

from __future__ import annotations

import numpy as np

from msrun_cli.transforms.boxes import clip_boxes, has_area
from msrun_cli.transforms.letterbox import fitted, interpolation_of, letterbox, shrunk
from msrun_cli.transforms.sample import Context, Sample
from msrun_cli.transforms.tiles import Tile, Tiles


class Mosaic:
    """The sample and three others, drawn at random, meet at a random point of a (2S, 2S) canvas.

    The result has a margin of S/2: the view is the S x S middle, which a following RandomAffine cuts out after warping
    (so scaled or shifted pictures show neighbours, not fill). Without a following affine the whole canvas is scaled to
    S. The canvas is not drawn until a step needs its pixels.

    probability: 0..1; a sample that is left alone is letterboxed to S
    fill: grey level where no tile reaches, 0..255
    shrink: interpolation of tiles that get smaller, "linear" or "area"
    """

    def __init__(self, *, probability: float = 1.0, fill: int = 114, shrink: str = "linear") -> None:
        self.probability = probability
        self.fill = fill
        self.fit = self.shrink = interpolation_of(shrink)

    @property
    def merges(self) -> int:
        return 4 if self.probability > 0 else 1

    def __call__(self, sample: Sample, context: Context) -> Sample:
        size, rng = context.image_size, context.rng
        if rng.random() >= self.probability:
            return letterbox(sample, size, self.fill, self.shrink)
        centre = rng.integers(size // 2, 3 * size // 2, size=2, endpoint=True)
        samples = [sample, *context.partners(3)]
        tiles, boxes, labels = [], [], []
        for corner, which in enumerate(rng.permutation(4)):
            tile, boxes_xyxy = self._place(samples[which], size, centre, corner)
            tiles.append(tile)
            boxes.append(boxes_xyxy)
            labels.append(samples[which].labels)
        boxes_xyxy = clip_boxes(np.concatenate(boxes), 2 * size, 2 * size)
        keep = has_area(boxes_xyxy)
        canvas = Tiles(2 * size, 2 * size, self.fill, tuple(tiles))
        return Sample(canvas, boxes_xyxy[keep], np.concatenate(labels)[keep], margin=size // 2)

    def _place(self, sample: Sample, size: int, centre: np.ndarray, corner: int) -> tuple[Tile, np.ndarray]:
        """The sample with long side `size` and one of its corners at `centre`.

        corner: 0..3 = the tile lies to the top left, top right, bottom left, bottom right of the centre
        Gives the tile and its boxes in pixels of the canvas, (N, 4), not yet clipped.
        """
        sample = shrunk(sample, size, self.shrink)
        height, width, scale = fitted(*sample.size, size)
        left = int(centre[0]) - (width if corner % 2 == 0 else 0)
        top = int(centre[1]) - (height if corner < 2 else 0)
        boxes_xyxy = sample.boxes_xyxy * np.float32(scale) + np.array([left, top, left, top], np.float32)
        return Tile(sample.image, left, top, width, height), boxes_xyxy
