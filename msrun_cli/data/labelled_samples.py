"""From image files with labels to network-sized samples, by index; the pipeline's workers call these, in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.bad_samples import BadSamples, GuardedReading
from msrun_cli.data.imagefolder import LabelledImages
from msrun_cli.data.operators import Operators
from msrun_cli.data.rows import Columns
from msrun_cli.data.samples import epoch_order
from msrun_cli.transforms.chain import Stage

_ALWAYS = Stage()


@dataclass(frozen=True)
class ImageChain:
    """One file -> what the network takes.

    steps: from transforms.classification, by name; stages: when a step is on, by name, always if it is not named
    normalize: (mean, std) to do it here, else the picture stays uint8
    """

    steps: Mapping[str, Any]
    image_size: int
    operators: Operators
    normalize: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    stages: Mapping[str, Stage] = field(default_factory=dict)

    def begin(self, path: str, rng: np.random.Generator, epoch: int = 0) -> tuple[np.ndarray, list[Any]]:
        """The decoded picture and the steps that are left: the first one may decode itself.

        Raises DataError when the file cannot be read or decoded.
        """
        steps = [step for name, step in self.steps.items() if epoch in self.stages.get(name, _ALWAYS)]
        # an Ascend has no operator that decodes and crops in one
        fused = getattr(steps[0], "plan_from_file", None) if steps and not self.operators.dvpp else None
        plan = fused(rng, self.image_size) if fused is not None else None
        try:
            content = np.fromfile(path, np.uint8)
            if not len(content):
                raise DataError(f"{path} is empty.")
            if plan is None:
                return self.operators.decode(content), steps
            (operation,) = plan
            return getattr(self.operators, operation.name)(content, **operation.arguments), steps[1:]
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
        except RuntimeError as error:
            raise DataError(f"{path} is damaged or no picture that MindSpore can decode.") from error

    def finish(self, image: np.ndarray, steps: list[Any], rng: np.random.Generator, path: str) -> np.ndarray:
        """uint8 (S, S, 3), or float32 (3, S, S) when normalised.

        Raises DataError when the steps give another size.
        """
        for step in steps:
            for operation in step.plan(rng, *image.shape[:2], self.image_size):
                image = getattr(self.operators, operation.name)(image, **operation.arguments)
        if image.shape != (self.image_size, self.image_size, 3):
            raise DataError(
                f"the steps of the transforms give {image.shape[1]}x{image.shape[0]} pixels for {path}, but "
                f"image_size={self.image_size}. End them with center_crop, random_crop or random_resized_crop."
            )
        return image if self.normalize is None else self.operators.normalize(image, *self.normalize)

    def timed_parts(self) -> list[tuple[Any, str, str]]:
        """The operations on pictures, for data.stage_times."""
        names = [name for name, kind in vars(type(self.operators)).items() if callable(kind) and name[0] != "_"]
        return [(self.operators, name, name) for name in names]

    def blank(self, number: int) -> np.ndarray:
        """A new array for that many pictures; what is in it does not matter."""
        size = self.image_size
        if self.normalize is None:
            return np.empty((number, size, size, 3), np.uint8)
        return np.empty((number, 3, size, size), np.float32)


class TrainImages:
    """Sample `epoch * count + position`: the picture at that position of that epoch's order, transformed.

    Its randomness comes from (seed, epoch, position) alone, so it is the same whoever computes it and when. Where an
    image turned bad, the next readable one of the epoch stands in for it, unless `bad` (None = a DataError) says
    otherwise.
    """

    def __init__(self, split: LabelledImages, chain: ImageChain, seed: int, bad: BadSamples | None) -> None:
        self.split, self.chain, self.seed = split, chain, seed
        self.reading = GuardedReading(split.records, split.paths.__getitem__, bad)
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    def blank(self, number: int) -> Columns:
        """images as in ImageChain.blank, labels int32 (number,), for `write`."""
        return self.chain.blank(number), np.empty(number, np.int32)

    def write(self, index: int, batch: Columns, place: int) -> None:
        """Put the sample into row `place` of the batch."""
        images, labels = batch
        count = len(self.split.paths)
        epoch, position = divmod(index, count)
        order = self._order_of(epoch)

        def begin(chosen: int) -> tuple[np.ndarray, list[Any], np.random.Generator]:
            rng = np.random.default_rng([self.seed, epoch, position])
            return (*self.chain.begin(self.split.paths[chosen], rng, epoch), rng)

        chosen, begun = self.reading.first_readable(
            (int(order[(position + step) % count]) for step in range(count)), begin
        )
        images[place] = self.chain.finish(*begun, self.split.paths[chosen])
        labels[place] = self.split.labels[chosen]

    def timed_parts(self) -> list[tuple[Any, str, str]]:
        """For data.stage_times."""
        return self.chain.timed_parts()

    def _order_of(self, epoch: int) -> np.ndarray:
        # One tuple, replaced as a whole: worker threads share this object.
        order = self._order
        if order[0] != epoch:
            order = self._order = (epoch, epoch_order(self.seed, epoch, len(self.split.paths)))
        return order[1]


class EvalImages:
    """Sample i: picture i, its label and i. A picture that turned bad (under the policy "skip") is black and has the
    label -1, which evaluation leaves out.
    """

    def __init__(self, split: LabelledImages, chain: ImageChain, bad: BadSamples | None) -> None:
        self.split, self.chain = split, chain
        self.reading = GuardedReading(split.records, split.paths.__getitem__, bad)

    def blank(self, number: int) -> Columns:
        """images as in ImageChain.blank, labels int32 (number,), index int32 (number,), for `write`."""
        return self.chain.blank(number), np.empty(number, np.int32), np.empty(number, np.int32)

    def write(self, index: int, batch: Columns, place: int) -> None:
        """Put the sample into row `place` of the batch."""
        images, labels, indices = batch
        indices[place] = index
        rng = np.random.default_rng(index)
        path = self.split.paths[index]
        try:
            _, begun = self.reading.first_readable([index], lambda _: self.chain.begin(path, rng))
        except DataError:
            if self.reading.bad is None:
                raise
            images[place], labels[place] = 0, -1
            return
        images[place] = self.chain.finish(*begun, rng, path)
        labels[place] = self.split.labels[index]
