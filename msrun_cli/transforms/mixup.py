"""Blend two pictures (Zhang et al., mixup, arXiv:1710.09412; for detection as in YOLOX, arXiv:2107.08430)."""

from __future__ import annotations

import cv2
import numpy as np

from msrun_cli.transforms.letterbox import square
from msrun_cli.transforms.sample import Context, Sample


class MixUp:
    """With `probability` the picture becomes r * picture + (1 - r) * another one, and has the boxes of both.

    The other one is a random record after all the steps before this one (its own mosaic, its own warp). Boxes count in
    full, whatever r is.

    probability: 0..1; 0 = off
    alpha: r is drawn from Beta(alpha, alpha); 32 keeps it near a half, 1 makes all r alike
    """

    def __init__(self, *, probability: float = 0.1, alpha: float = 32.0) -> None:
        self.probability = probability
        self.alpha = alpha

    @property
    def merges(self) -> int:
        return 2 if self.probability > 0 else 1

    def __call__(self, sample: Sample, context: Context) -> Sample:
        if self.probability <= 0 or context.rng.random() >= self.probability:
            return sample
        ratio = context.rng.beta(self.alpha, self.alpha)
        sample = square(sample, context.image_size)
        other = square(context.another(), context.image_size)
        image = sample.own_image(context.out)
        cv2.addWeighted(image, ratio, other.image, 1 - ratio, 0, dst=image)
        return Sample(
            image,
            np.concatenate([sample.boxes_xyxy, other.boxes_xyxy]),
            np.concatenate([sample.labels, other.labels]),
        )
