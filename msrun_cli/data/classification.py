"""Image files with labels -> MindSpore datasets of classification batches.

A batch for training has `images` uint8 (B, S, S, 3) RGB and `labels` int32 (B,), or float32 (B, C) class probabilities
with mixup or cutmix. A batch for evaluation has `images`, `labels` (-1 = a file that was skipped) and `index` int32
(B,) into the split. With normalisation on the host, `images` are float32 (B, 3, S, S).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.imagefolder import ImageFolderData, LabelledImages
from msrun_cli.data.labelled_samples import EvalImages, ImageChain, SkippedFiles, TrainImages
from msrun_cli.data.operators import Operators
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.rows import BatchRows, Columns

TRAIN_COLUMNS = ["images", "labels"]
EVAL_COLUMNS = ["images", "labels", "index"]
MIX = "mix"  # the step of a chain that sees whole batches
# Seeds of pictures end in their position; no position is as large as this, so batches have seeds of their own.
_MIXING = 2**32 - 2


def train_pipeline(
    data: ImageFolderData,
    steps: Mapping[str, Any],
    *,
    image_size: int,
    batch_size: int,
    seed: int,
    loader: LoaderOptions,
    first_epoch: int = 0,
    first_step: int = 0,
    shard: tuple[int, int] = (0, 1),
    dvpp: bool = False,
) -> Batches:
    """Endless epochs of shuffled batches; what does not fill a batch on every rank is left out.

    steps: of transforms.classification by name, and "mix" of transforms.mixing. first_epoch, first_step, shard: as in
    data.detection.train_pipeline. dvpp: see data.operators.

    Raises:
        DataError: fewer pictures than one batch.
    """
    rank, ranks = shard
    split = data.train
    count = len(split.paths)
    num_steps = count // (batch_size * ranks)
    if num_steps == 0:
        raise DataError(_too_few(split, batch_size, ranks))
    if not 0 <= first_step < num_steps:
        raise ValueError(f"first_step={first_step} is not inside an epoch of {num_steps} steps")

    def indices_of(row: int) -> np.ndarray:
        epoch, step = divmod(row, num_steps)
        first = epoch * count + step * batch_size * ranks
        return np.arange(first + rank, first + batch_size * ranks, ranks)

    skipped = SkippedFiles(data.on_bad_sample)
    samples = TrainImages(split, _chain(data, steps, image_size, dvpp), seed, skipped)
    mix = steps.get(MIX)
    finish = None
    if mix is not None and mix.enabled:
        classes = len(data.class_names)

        def finish(row: int, columns: Columns) -> Columns:
            images, labels = columns
            return mix(np.random.default_rng([seed, *divmod(row, num_steps), rank, _MIXING]), images, labels, classes)

    return Batches(
        BatchRows(samples, indices_of, num_steps, finish),
        TRAIN_COLUMNS,
        loader,
        batch_size=batch_size,
        first_epoch=first_epoch,
        first_step=first_step,
        after_batch=skipped.say,
    )


def eval_pipeline(
    data: ImageFolderData,
    split: LabelledImages,
    steps: Mapping[str, Any],
    *,
    image_size: int,
    batch_size: int,
    loader: LoaderOptions,
    shard: tuple[int, int] = (0, 1),
    dvpp: bool = False,
) -> Batches:
    """One pass in order over every picture of this rank (r::n); the last batch may be smaller."""
    rank, ranks = shard
    indices = np.arange(len(split.paths))[rank::ranks]
    if not len(indices):
        raise DataError(f"the {split.name} split has no pictures for rank {rank} of {ranks}: nothing to evaluate.")
    skipped = SkippedFiles(data.on_bad_sample)
    rows = BatchRows(
        EvalImages(split, _chain(data, steps, image_size, dvpp), skipped),
        lambda row: indices[row * batch_size : (row + 1) * batch_size],
        -(-len(indices) // batch_size),
    )
    return Batches(rows, EVAL_COLUMNS, loader, batch_size=batch_size, after_batch=skipped.say)


def _chain(data: ImageFolderData, steps: Mapping[str, Any], image_size: int, dvpp: bool) -> ImageChain:
    normalize = (data.mean, data.std) if data.normalize_on == "host" else None
    pictures = {name: step for name, step in steps.items() if name != MIX}
    return ImageChain(pictures, image_size, Operators(dvpp), normalize)


def _too_few(split: LabelledImages, batch_size: int, ranks: int) -> str:
    count = len(split.paths)
    if count == 0:
        return "there are no pictures to train on: dataset.root has no train folder."
    needed = f"batch_size={batch_size}" + (f" on {ranks} ranks" if ranks > 1 else "")
    allowed = f"set batch_size to at most {count // ranks}" if count >= ranks else f"use at most {count} ranks"
    return f"the {split.name} split has {count} pictures, fewer than one batch ({needed}): {allowed}."
