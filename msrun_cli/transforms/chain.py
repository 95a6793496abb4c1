"""Named transforms, run in order."""

from __future__ import annotations

import math
from collections.abc import Mapping

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

    def __call__(self, sample: Sample, context: Context) -> Sample:
        for step in self.steps.values():
            sample = step(sample, context)
        size = context.image_size
        if sample.image.shape[:2] != (size, size):
            sample = letterbox(sample, size)
        sample.image = np.ascontiguousarray(sample.image)
        return sample
