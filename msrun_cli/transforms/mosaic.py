"""Join four pictures around one point (Bochkovskiy et al., YOLOv4, arXiv:2004.10934, section 3.3)."""

from __future__ import annotations

import numpy as np

from msrun_cli.transforms.boxes import clip_boxes, has_area
from msrun_cli.transforms.letterbox import interpolation_of, letterbox, resize_long_side
from msrun_cli.transforms.sample import Context, Sample


class Mosaic:
    """The sample and three others, drawn at random, meet at a random point of a (2S, 2S) canvas.

    The result has a margin of S/2: the view is the S x S middle, which a following RandomAffine cuts out after warping
    (so scaled or shifted pictures show neighbours, not fill). Without a following affine the whole canvas is scaled to
    S.

    probability: 0..1; a sample that is left alone is letterboxed to S
    fill: grey level where no tile reaches, 0..255
    shrink: interpolation of tiles that get smaller, "linear" or "area"
    """

    merges = 4

    def __init__(self, *, probability: float = 1.0, fill: int = 114, shrink: str = "linear") -> None:
        self.probability = probability
        self.fill = fill
        self.shrink = interpolation_of(shrink)

    def __call__(self, sample: Sample, context: Context) -> Sample:
        size, rng = context.image_size, context.rng
        if rng.random() >= self.probability:
            return letterbox(sample, size, self.fill, self.shrink)
        centre = rng.integers(size // 2, 3 * size // 2, size=2, endpoint=True)
        samples = [sample, *(context.read(int(index)) for index in rng.integers(0, context.count, size=3))]
        canvas = np.full((2 * size, 2 * size, 3), self.fill, np.uint8)
        boxes, labels = [], []
        for corner, which in enumerate(rng.permutation(4)):
            boxes.append(self._place(canvas, samples[which], centre, corner))
            labels.append(samples[which].labels)
        boxes_xyxy = clip_boxes(np.concatenate(boxes), 2 * size, 2 * size)
        keep = has_area(boxes_xyxy)
        return Sample(canvas, boxes_xyxy[keep], np.concatenate(labels)[keep], margin=size // 2)

    def _place(self, canvas: np.ndarray, sample: Sample, centre: np.ndarray, corner: int) -> np.ndarray:
        """Draw the resized sample so that one of its corners is at `centre`.

        corner: 0..3 = the tile lies to the top left, top right, bottom left, bottom right of the centre
        Gives its boxes in pixels of the canvas, (N, 4), not yet clipped.
        """
        side = canvas.shape[0]
        tile, scale = resize_long_side(sample.image, side // 2, self.shrink)
        height, width = tile.shape[:2]
        left = int(centre[0]) - (width if corner % 2 == 0 else 0)
        top = int(centre[1]) - (height if corner < 2 else 0)
        x1, y1, x2, y2 = max(left, 0), max(top, 0), min(left + width, side), min(top + height, side)
        canvas[y1:y2, x1:x2] = tile[y1 - top : y2 - top, x1 - left : x2 - left]
        return sample.boxes_xyxy * np.float32(scale) + np.array([left, top, left, top], np.float32)
