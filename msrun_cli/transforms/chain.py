"""Named transforms, run in order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np

from msrun_cli.transforms.letterbox import square
from msrun_cli.transforms.sample import Context, Sample, Transform


@dataclass(frozen=True, slots=True)
class Stage:
    """Epochs (from 0) in which a step is on: first <= epoch < end; end None = to the last."""

    first: int = 0
    end: int | None = None

    def __contains__(self, epoch: int) -> bool:
        return self.first <= epoch and (self.end is None or epoch < self.end)


class Chain:
    """Run `steps` in their order; a step that is None is off.

    stages: when a step is on, by name; always if it is not named
    Whatever the steps leave is letterboxed to (image_size, image_size, 3) if it has another shape, so that each chain,
    an empty one too, gives pictures that can be batched.
    """

    def __init__(self, steps: Mapping[str, Transform | None], stages: Mapping[str, Stage] | None = None) -> None:
        self.steps: dict[str, Transform] = {name: step for name, step in steps.items() if step is not None}
        self.stages = dict(stages or {})

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
        active = [step for name, step in self.steps.items() if context.epoch in self.stages.get(name, _ALWAYS)]
        sample = square(_through(active, sample, context), context.image_size)
        sample.image = np.ascontiguousarray(sample.drawn(context.out))
        return sample


_ALWAYS = Stage()


def _through(steps: Sequence[Transform], sample: Sample, context: Context) -> Sample:
    for number, step in enumerate(steps):
        # A partner's way through the earlier steps ends in memory of its own.
        context.before = lambda other, earlier=steps[:number]: _through(earlier, other, replace(context, out=None))
        sample = step(sample, context)
    return sample
