"""Random mirroring."""

from __future__ import annotations

import cv2

from msrun_cli.transforms.sample import Context, Sample


class RandomHorizontalFlip:
    """Mirror left and right with `probability` (0..1)."""

    def __init__(self, *, probability: float = 0.5) -> None:
        self.probability = probability

    def __call__(self, sample: Sample, context: Context) -> Sample:
        if context.rng.random() >= self.probability:
            return sample
        return _mirrored(sample, context, axis=0)


class RandomVerticalFlip:
    """Mirror top and bottom with `probability` (0..1)."""

    def __init__(self, *, probability: float = 0.5) -> None:
        self.probability = probability

    def __call__(self, sample: Sample, context: Context) -> Sample:
        if context.rng.random() >= self.probability:
            return sample
        return _mirrored(sample, context, axis=1)


def _mirrored(sample: Sample, context: Context, axis: int) -> Sample:
    """axis: 0 = left and right change places, 1 = top and bottom."""
    image = sample.drawn(context.out)
    side = image.shape[1 - axis]
    boxes_xyxy = sample.boxes_xyxy.copy()
    boxes_xyxy[:, [axis, axis + 2]] = side - sample.boxes_xyxy[:, [axis + 2, axis]]
    # In place where nobody else has the pixels.
    flipped = cv2.flip(image, 1 - axis, dst=image if image.flags.writeable else None)
    return Sample(flipped, boxes_xyxy, sample.labels, margin=sample.margin)
