"""From image files with labels to network-sized samples, by index; the pipeline's workers call these, in any order."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.imagefolder import LabelledImages
from msrun_cli.data.operators import Operators
from msrun_cli.data.samples import epoch_order

_ATTEMPTS = 50  # unreadable files in a row that end the job also when they are skipped


class UnreadableFile(Exception):
    """A file that cannot be read or decoded; the text says why."""


@dataclass(frozen=True)
class ImageChain:
    """One file -> what the network takes.

    steps: from transforms.classification, by name; None = left out. normalize: (mean, std) to do it here, else the
    picture stays uint8.
    """

    steps: Mapping[str, Any]
    image_size: int
    operators: Operators
    normalize: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    def __call__(self, path: str, rng: np.random.Generator) -> np.ndarray:
        """uint8 (S, S, 3), or float32 (3, S, S) when normalised. Raises UnreadableFile."""
        steps = [step for step in self.steps.values() if step is not None]
        image, steps = self._decoded(path, steps, rng)
        for step in steps:
            for operation in step.plan(rng, *image.shape[:2], self.image_size):
                image = getattr(self.operators, operation.name)(image, **operation.arguments)
        if image.shape != (self.image_size, self.image_size, 3):
            raise DataError(
                f"the steps of the transforms give {image.shape[1]}x{image.shape[0]} pixels for {path}, but "
                f"image_size={self.image_size}. End them with center_crop, random_crop or random_resized_crop."
            )
        return image if self.normalize is None else self.operators.normalize(image, *self.normalize)

    def blank(self) -> np.ndarray:
        """In place of a file that cannot be read."""
        size = self.image_size
        return np.zeros((size, size, 3), np.uint8) if self.normalize is None else np.zeros((3, size, size), np.float32)

    def _decoded(self, path: str, steps: list[Any], rng: np.random.Generator) -> tuple[np.ndarray, list[Any]]:
        """The picture and the steps that are left: the first one may decode itself."""
        fused = getattr(steps[0], "plan_from_file", None) if steps else None
        plan = fused(rng, self.image_size) if fused is not None else None
        try:
            content = np.fromfile(path, np.uint8)
            if not len(content):
                raise UnreadableFile("it is empty")
            if plan is None:
                return self.operators.decode(content), steps
            (operation,) = plan
            return getattr(self.operators, operation.name)(content, **operation.arguments), steps[1:]
        except OSError as error:
            raise UnreadableFile(error.strerror or str(error)) from error
        except RuntimeError as error:
            raise UnreadableFile("it is damaged or no picture that MindSpore can decode") from error


class TrainImages:
    """Sample `epoch * count + position`: the picture at that position of that epoch's order, transformed.

    Its randomness comes from (seed, epoch, position) alone, so it is the same whoever computes it and when. In place of
    a file that is skipped, the picture at the next position is taken.
    """

    def __init__(self, split: LabelledImages, chain: ImageChain, seed: int, skipped: SkippedFiles) -> None:
        self.split, self.chain, self.seed, self.skipped = split, chain, seed, skipped
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """images as in ImageChain, labels int32 ()."""
        count = len(self.split.paths)
        epoch, position = divmod(index, count)
        order = self._order_of(epoch)
        for attempt in range(min(count, _ATTEMPTS)):
            chosen = order[(position + attempt) % count]
            path = self.split.paths[chosen]
            try:
                image = self.chain(path, np.random.default_rng([self.seed, epoch, position]))
            except UnreadableFile as error:
                self.skipped.add(path, error)
                continue
            return image, self.split.labels[chosen]
        raise DataError(f"{_ATTEMPTS} files of {self.split.name} in a row cannot be read, the last one {path}.")

    def _order_of(self, epoch: int) -> np.ndarray:
        # One tuple, replaced as a whole: worker threads share this object.
        order = self._order
        if order[0] != epoch:
            order = self._order = (epoch, epoch_order(self.seed, epoch, len(self.split.paths)))
        return order[1]


class EvalImages:
    """Sample i: picture i, its label and i; label -1 for a file that is skipped."""

    def __init__(self, split: LabelledImages, chain: ImageChain, skipped: SkippedFiles) -> None:
        self.split, self.chain, self.skipped = split, chain, skipped

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """images as in ImageChain, labels int32 (), index int32 ()."""
        path = self.split.paths[index]
        number = np.array(index, np.int32)
        try:
            return self.chain(path, np.random.default_rng(index)), self.split.labels[index], number
        except UnreadableFile as error:
            self.skipped.add(path, error)
            return self.chain.blank(), np.array(-1, np.int32), number


class SkippedFiles:
    """Files that could not be read, counted over all worker processes; with policy "error", the first one is an error.

    Raises DataError from `add`.
    """

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self._count = multiprocessing.get_context("fork").Value("q", 0)
        self._owner = os.getpid()
        self._said = 0
        self.example = ""

    def add(self, path: str, error: UnreadableFile) -> None:
        if self.policy == "error":
            raise DataError(f"{path}: {error}. Remove or replace it, or set dataset.on_bad_sample=skip.") from error
        self.example = self.example or f" ({path}: {error})"
        with self._count.get_lock():
            self._count.value += 1

    def say(self) -> None:
        """Log the count when it grew to the next power of two; only in the process that made this object."""
        count = self._count.value
        if count < max(1, 2 * self._said) or os.getpid() != self._owner:
            return
        self._said = count
        logging.getLogger("msrun").warning(
            "%d times a file could not be read and was skipped%s; dataset.on_bad_sample=error stops at the first.",
            count,
            self.example,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> SkippedFiles:
        return self
