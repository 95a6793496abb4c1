"""From records to network-sized samples, by index. Pure numpy: the pipeline's workers call these, in any order."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.bad_samples import BadSamples, GuardedReading
from msrun_cli.data.images import read_rgb
from msrun_cli.data.records import Record
from msrun_cli.transforms.chain import Chain
from msrun_cli.transforms.sample import Context, Geometry, Sample

# numpy seeds [s, e] and [s, e, 0] alike, so the shuffle needs a third number that no position can have.
_SHUFFLE = 2**32 - 1


def epoch_order(seed: int, epoch: int, count: int) -> np.ndarray:
    """int64 (count,): the record at each position of an epoch."""
    return np.random.default_rng([seed, epoch, _SHUFFLE]).permutation(count)


def read_sample(record: Record) -> Sample:
    """The file as it is, with the boxes that may be trained on (no crowds)."""
    image = read_rgb(record.image_path, record.width, record.height)
    single = ~record.iscrowd
    geometry = Geometry.identity(record.width, record.height)
    return Sample(image, record.boxes_xyxy[single], record.labels[single], geometry)


class TrainSamples:
    """Sample `epoch * count + position`: the picture at that position of that epoch's order, transformed.

    Its randomness comes from (seed, epoch, position) alone, so it is the same whoever computes it and when.
    """

    def __init__(
        self,
        records: Sequence[Record],
        transforms: Chain,
        *,
        image_size: int,
        max_boxes: int,
        seed: int,
        bad: BadSamples | None = None,
    ) -> None:
        self.records = records
        self.transforms = transforms
        self.image_size = image_size
        self.max_boxes = max_boxes
        self.seed = seed
        self.cuts = CutBoxes(max_boxes)
        self.reading = GuardedReading(records, read_sample, bad)
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """images uint8 (S, S, 3), targets float32 (max_boxes, 5)."""
        count = len(self.records)
        epoch, position = divmod(index, count)
        order = self._order_of(epoch)
        # Where an image turned bad, the next readable one of the epoch stands in for it.
        record, sample = self.reading.first_readable(int(order[(position + step) % count]) for step in range(count))
        rng = np.random.default_rng([self.seed, epoch, position])
        context = Context(rng, self._read, count, self.image_size)
        sample = _transformed(record, sample, self.transforms, context)
        targets, cut = pack_targets(sample, self.image_size, self.max_boxes)
        self.cuts.add(cut)
        return sample.image, targets

    def _read(self, index: int) -> Sample:
        count = len(self.records)
        return self.reading.first_readable((index + step) % count for step in range(count))[1]

    def _order_of(self, epoch: int) -> np.ndarray:
        # One tuple, replaced as a whole: worker threads share this object.
        order = self._order
        if order[0] != epoch:
            order = self._order = (epoch, epoch_order(self.seed, epoch, len(self.records)))
        return order[1]


class EvalSamples:
    """Sample i: the picture of record i, transformed, with its index and geometry.

    A picture that turned bad (under the policy "skip") is black and has the index -1, which evaluation leaves out.
    """

    def __init__(
        self, records: Sequence[Record], transforms: Chain, *, image_size: int, bad: BadSamples | None = None
    ) -> None:
        self.records = records
        self.transforms = transforms
        self.image_size = image_size
        self.reading = GuardedReading(records, read_sample, bad)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """images uint8 (S, S, 3), index int32 (), geometry float32 (5,)."""
        # Evaluation has no randomness; a step that draws all the same draws the same for a picture in each run.
        context = Context(np.random.default_rng(index), self._read, len(self.records), self.image_size)
        try:
            record, sample = self.reading.first_readable([index])
        except DataError:
            if self.reading.bad is None:
                raise
            side = self.image_size
            return (
                np.zeros((side, side, 3), np.uint8),
                np.array(-1, np.int32),
                np.array([1, 0, 0, side, side], np.float32),
            )
        sample = _transformed(record, sample, self.transforms, context)
        at = sample.geometry
        if at is None:
            raise DataError(
                "a step of transforms@eval_transforms loses where the picture's pixels came from (a mosaic, warp or "
                "flip does), so boxes cannot be mapped back to the file. Keep to letterbox there."
            )
        geometry = np.array([at.scale, at.pad_x, at.pad_y, at.width, at.height], np.float32)
        return sample.image, np.array(index, np.int32), geometry

    def _read(self, index: int) -> Sample:
        return read_sample(self.records[index])


def _transformed(record: Record, sample: Sample, transforms: Chain, context: Context) -> Sample:
    # The pipeline has its own workers; OpenCV's threads on top of them only take cores from each other.
    if cv2.getNumThreads() > 1:
        cv2.setNumThreads(0)
    try:
        return transforms(sample, context)
    except DataError:
        raise
    except Exception as error:
        raise RuntimeError(f"transforms failed on {record.image_path}: {type(error).__name__}: {error}") from error


def pack_targets(sample: Sample, size: int, max_boxes: int) -> tuple[np.ndarray, int]:
    """float32 (max_boxes, 5) rows of [class, cx, cy, w, h] in 0..1, class -1 = padding; and how many boxes did not fit.

    The largest boxes stay.
    """
    boxes = np.clip(sample.boxes_xyxy, 0, size) / np.float32(size)
    sides = boxes[:, 2:] - boxes[:, :2]
    cut = max(0, len(boxes) - max_boxes)
    chosen = np.sort(np.argsort(-sides.prod(axis=1), kind="stable")[:max_boxes]) if cut else slice(None)
    count = len(boxes) - cut
    targets = np.zeros((max_boxes, 5), np.float32)
    targets[:, 0] = -1
    targets[:count, 0] = sample.labels[chosen]
    targets[:count, 1:3] = ((boxes[:, :2] + boxes[:, 2:]) / 2)[chosen]
    targets[:count, 3:] = sides[chosen]
    return targets, cut


class CutBoxes:
    """Counts the boxes that did not fit into max_boxes, over all worker processes, and says so once."""

    def __init__(self, max_boxes: int) -> None:
        self.max_boxes = max_boxes
        self._count = multiprocessing.get_context("fork").Value("q", 0)
        self._owner = os.getpid()
        self._said = False

    @property
    def count(self) -> int:
        return self._count.value

    def add(self, number: int) -> None:
        if number:
            with self._count.get_lock():
                self._count.value += number

    def say(self) -> None:
        """Log the first time something was cut; only in the process that made this object, which owns the log."""
        if self._said or not self.count or os.getpid() != self._owner:
            return
        self._said = True
        logging.getLogger("msrun").warning(
            "%d boxes so far did not fit into max_boxes=%d and were left out (the smallest of their picture): "
            "raise dataset.max_boxes to train on them.",
            self.count,
            self.max_boxes,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> CutBoxes:
        return self
