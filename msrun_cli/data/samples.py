"""From records to network-sized samples, by index. Pure numpy: the pipeline's workers call these, in any order."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.bad_samples import BadSamples, GuardedReading
from msrun_cli.data.pictures import Pictures
from msrun_cli.data.records import Record
from msrun_cli.data.rows import Columns
from msrun_cli.transforms.chain import Chain
from msrun_cli.transforms.sample import Context, Sample

# numpy seeds [s, e] and [s, e, 0] alike, so the shuffle needs a third number that no position can have.
_SHUFFLE = 2**32 - 1


def epoch_order(seed: int, epoch: int, count: int) -> np.ndarray:
    """int64 (count,): the record at each position of an epoch."""
    return np.random.default_rng([seed, epoch, _SHUFFLE]).permutation(count)


def files_of_batch(
    records: Sequence[Record], seed: int, batch_size: int, number: int, shard: tuple[int, int] = (0, 1)
) -> list[str]:
    """Paths of the records at the places of the training's batch `number`, counted from 1 over all epochs.

    batch_size: of each rank; shard: (rank, number of ranks)
    """
    rank, ranks = shard
    together = batch_size * ranks
    epoch, step = divmod(number - 1, len(records) // together)
    order = epoch_order(seed, epoch, len(records))[step * together :]
    return [records[index].image_path for index in order[rank:together:ranks].tolist()]


class TrainSamples:
    """Sample `epoch * count + position`: the picture at that position of that epoch's order, transformed.

    Its randomness comes from (seed, epoch, position) alone, so it is the same whoever computes it and when.

    partner_window: pictures are merged with others whose positions in the epoch's order are at most half of this away.
        The order is new in each epoch, so over epochs any two pictures meet, while within one each file is decoded
        about once. None, or at least the number of records: merged with any record.
    """

    def __init__(
        self,
        pictures: Pictures,
        transforms: Chain,
        *,
        image_size: int,
        max_boxes: int,
        seed: int,
        partner_window: int | None = None,
        bad: BadSamples | None = None,
    ) -> None:
        self.pictures = pictures
        self.count = len(pictures.records)
        self.transforms = transforms
        self.image_size = image_size
        self.max_boxes = max_boxes
        self.seed = seed
        self.partner_window = partner_window
        self.cuts = CutBoxes(max_boxes)
        self.reading = GuardedReading(pictures.records, pictures.__getitem__, bad)
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    def blank(self, number: int) -> Columns:
        """images uint8 (number, S, S, 3), targets float32 (number, max_boxes, 5), for `write`."""
        size = self.image_size
        return np.empty((number, size, size, 3), np.uint8), np.empty((number, self.max_boxes, 5), np.float32)

    def write(self, index: int, batch: Columns, place: int) -> None:
        """Put the sample into row `place` of the batch."""
        images, targets = batch
        epoch, position = divmod(index, self.count)
        order = self._order_of(epoch)
        # Where an image turned bad, the next readable one of the epoch stands in for it.
        found, sample = self.reading.first_readable(
            int(order[(position + step) % self.count]) for step in range(self.count)
        )
        context = Context(
            np.random.default_rng([self.seed, epoch, position]),
            self._read,
            self.count,
            self.image_size,
            choose=self._partners_of(order, position),
            out=images[place],
            epoch=epoch,
        )
        sample = _transformed(sample, self.pictures.records[found].image_path, self.transforms, context)
        _put(images[place], sample.image)
        targets[place], cut = pack_targets(sample, self.image_size, self.max_boxes)
        self.cuts.add(cut)

    def timed_parts(self) -> list[tuple[Any, str, str]]:
        """For data.stage_times."""
        return _timed_parts(self.pictures, self.transforms)

    def _partners_of(self, order: np.ndarray, position: int) -> Callable[..., np.ndarray] | None:
        """How Context.partners chooses: without the picture itself, and none twice while there are enough."""
        window = self.partner_window
        if window is None or window >= self.count:
            return None
        near = order[max(0, position - window // 2) : position + window // 2 + 1]
        others = near[near != order[position]]
        return lambda rng, number: rng.choice(others, number, replace=number > len(others))

    def _read(self, index: int) -> Sample:
        return self.reading.first_readable((index + step) % self.count for step in range(self.count))[1]

    def _order_of(self, epoch: int) -> np.ndarray:
        # One tuple, replaced as a whole: worker threads share this object.
        order = self._order
        if order[0] != epoch:
            order = self._order = (epoch, epoch_order(self.seed, epoch, self.count))
        return order[1]


class EvalSamples:
    """Sample i: the picture of record i, transformed, with its index and geometry.

    A picture that turned bad (under the policy "skip") is black and has the index -1, which evaluation leaves out.
    """

    def __init__(
        self, pictures: Pictures, transforms: Chain, *, image_size: int, bad: BadSamples | None = None
    ) -> None:
        self.pictures = pictures
        self.transforms = transforms
        self.image_size = image_size
        self.reading = GuardedReading(pictures.records, pictures.__getitem__, bad)

    def blank(self, number: int) -> Columns:
        """images uint8 (number, S, S, 3), index int32 (number,), geometry float32 (number, 5), for `write`."""
        size = self.image_size
        return (
            np.empty((number, size, size, 3), np.uint8),
            np.empty(number, np.int32),
            np.empty((number, 5), np.float32),
        )

    def write(self, index: int, batch: Columns, place: int) -> None:
        """Put the sample into row `place` of the batch."""
        images, indices, geometries = batch
        # Evaluation has no randomness; a step that draws all the same draws the same for a picture in each run.
        try:
            _, sample = self.reading.first_readable([index])
        except DataError:
            if self.reading.bad is None:
                raise
            side = self.image_size
            images[place], indices[place], geometries[place] = 0, -1, (1, 0, 0, side, side)
            return
        context = Context(
            np.random.default_rng(index),
            self.pictures.__getitem__,
            len(self.pictures.records),
            self.image_size,
            out=images[place],
        )
        sample = _transformed(sample, self.pictures.records[index].image_path, self.transforms, context)
        at = sample.geometry
        if at is None:
            raise DataError(
                "a step of transforms@eval_transforms loses where the picture's pixels came from (a mosaic, warp or "
                "flip does), so boxes cannot be mapped back to the file. Keep to letterbox there."
            )
        _put(images[place], sample.image)
        indices[place] = index
        geometries[place] = at.scale, at.pad_x, at.pad_y, at.width, at.height

    def timed_parts(self) -> list[tuple[Any, str, str]]:
        """For data.stage_times."""
        return _timed_parts(self.pictures, self.transforms)


def _timed_parts(pictures: Pictures, transforms: Chain) -> list[tuple[Any, str, str]]:
    return [pictures.decoding(), *((transforms.steps, name, name) for name in transforms.steps)]


def _put(place: np.ndarray, image: np.ndarray) -> None:
    """Copy, unless the last step has drawn it there already."""
    if image.ctypes.data != place.ctypes.data:
        place[...] = image


def _transformed(sample: Sample, path: str, transforms: Chain, context: Context) -> Sample:
    # The pipeline has its own workers; OpenCV's threads on top of them only take cores from each other.
    if cv2.getNumThreads() > 1:
        cv2.setNumThreads(0)
    try:
        return transforms(sample, context)
    except DataError:
        raise
    except Exception as error:
        raise RuntimeError(f"transforms failed on {path}: {type(error).__name__}: {error}") from error


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

    def forget(self) -> None:
        with self._count.get_lock():
            self._count.value = 0

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
