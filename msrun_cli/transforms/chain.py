"""Named transforms, run in order."""

from __future__ import annotations

import math
from collections.abc import Mapping

import cv2
import numpy as np

from msrun_cli.transforms.letterbox import letterbox
from msrun_cli.transforms.sample import Context, Sample, Transform


class Chain:
    """Run `steps` in their order; a step that is None is off.

    Whatever the steps leave is letterboxed to (image_size, image_size, 3) if it has another shape, so that each chain,
    an empty one too, gives pictures that can be batched.
    """

    def __init__(self, steps: Mapping[str, Transform | None]) -> None:
        self.steps: dict[str, Transform] = {name: step for name, step in steps.items() if step is not None}

    @property
    def merges(self) -> int:
        """How many records can end up in one picture."""
        return math.prod(getattr(step, "merges", 1) for step in self.steps.values())

    @property
    def fit(self) -> int | None:
        """OpenCV's interpolation with which the first step shrinks every picture to a long side of image_size, before
        anything else. Readers may then give it pictures that are shrunk like that already. None = it does not."""
        first = next(iter(self.steps.values()), None)
        return cv2.INTER_LINEAR if first is None else getattr(first, "fit", None)

    def __call__(self, sample: Sample, context: Context) -> Sample:
        for step in self.steps.values():
            sample = step(sample, context)
        size = context.image_size
        if sample.size != (size, size):
            sample = letterbox(sample, size)
        sample.image = np.ascontiguousarray(sample.drawn(context.out))
        return sample
