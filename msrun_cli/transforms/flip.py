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
        boxes_xyxy = sample.boxes_xyxy.copy()
        boxes_xyxy[:, [0, 2]] = sample.image.shape[1] - sample.boxes_xyxy[:, [2, 0]]
        return Sample(cv2.flip(sample.image, 1), boxes_xyxy, sample.labels, margin=sample.margin)


class RandomVerticalFlip:
    """Mirror top and bottom with `probability` (0..1)."""

    def __init__(self, *, probability: float = 0.5) -> None:
        self.probability = probability

    def __call__(self, sample: Sample, context: Context) -> Sample:
        if context.rng.random() >= self.probability:
            return sample
        boxes_xyxy = sample.boxes_xyxy.copy()
        boxes_xyxy[:, [1, 3]] = sample.image.shape[0] - sample.boxes_xyxy[:, [3, 1]]
        return Sample(cv2.flip(sample.image, 0), boxes_xyxy, sample.labels, margin=sample.margin)
