"""Image files with labels -> MindSpore datasets of classification batches.

A batch for training has `images` uint8 (B, S, S, 3) RGB and `labels` int32 (B,), or float32 (B, C) class probabilities
with mixup or cutmix. A batch for evaluation has `images`, `labels` (-1 = a file that turned bad) and `index` int32
(B,) into the split. With normalisation on the host, `images` are float32 (B, 3, S, S).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.bad_samples import BadSamples
from msrun_cli.data.imagefolder import ImageFolderData, LabelledImages
from msrun_cli.data.labelled_samples import EvalImages, ImageChain, TrainImages
from msrun_cli.data.operators import Operators
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.rows import BatchRows, Columns
from msrun_cli.transforms.chain import Chain, Stage
from msrun_cli.transforms.mixing import one_hot

TRAIN_COLUMNS = ["images", "labels"]
EVAL_COLUMNS = ["images", "labels", "index"]
MIX = "mix"  # the step of a chain that sees whole batches
# Seeds of pictures end in their position; no position is as large as this, so batches have seeds of their own.
_MIXING = 2**32 - 2


def train_pipeline(
    data: ImageFolderData,
    chain: Chain,
    *,
    image_size: int,
    batch_size: int,
    seed: int,
    loader: LoaderOptions,
    first_epoch: int = 0,
    first_step: int = 0,
    shard: tuple[int, int] = (0, 1),
    dvpp: bool = False,
    bad: BadSamples | None = None,
) -> Batches:
    """Endless epochs of shuffled batches; what does not fill a batch on every rank is left out.

    chain: steps of transforms.classification, and "mix" of transforms.mixing. first_epoch, first_step, shard, bad: as
    in data.detection.train_pipeline. dvpp: see data.operators.

    Raises:
        DataError: fewer pictures than one batch.
    """
    rank, ranks = shard
    split = data.train
    count = len(split.paths)
    steps = count // (batch_size * ranks)
    if steps == 0:
        raise DataError(_too_few(split, batch_size, ranks))
    if not 0 <= first_step < steps:
        raise ValueError(f"first_step={first_step} is not inside an epoch of {steps} steps")

    def indices_of(row: int) -> np.ndarray:
        epoch, step = divmod(row, steps)
        first = epoch * count + step * batch_size * ranks
        return np.arange(first + rank, first + batch_size * ranks, ranks)

    samples = TrainImages(split, _image_chain(data, chain, image_size, dvpp), seed, bad)
    return Batches(
        BatchRows(samples, indices_of, steps, _mixing(chain, len(data.class_names), seed, steps, rank)),
        TRAIN_COLUMNS,
        loader,
        batch_size=batch_size,
        first_epoch=first_epoch,
        first_step=first_step,
        what="training",
    )


def eval_pipeline(
    data: ImageFolderData,
    split: LabelledImages,
    chain: Chain,
    *,
    image_size: int,
    batch_size: int,
    loader: LoaderOptions,
    shard: tuple[int, int] = (0, 1),
    dvpp: bool = False,
    bad: BadSamples | None = None,
) -> Batches:
    """One pass in order over every picture of this rank (r::n); the last batch may be smaller."""
    rank, ranks = shard
    indices = np.arange(len(split.paths))[rank::ranks]
    if not len(indices):
        raise DataError(f"the {split.name} split has no pictures for rank {rank} of {ranks}: nothing to evaluate.")
    rows = BatchRows(
        EvalImages(split, _image_chain(data, chain, image_size, dvpp), bad),
        lambda row: indices[row * batch_size : (row + 1) * batch_size],
        -(-len(indices) // batch_size),
    )
    return Batches(rows, EVAL_COLUMNS, loader, batch_size=batch_size, what=f"evaluation of {split.name}")


def _image_chain(data: ImageFolderData, chain: Chain, image_size: int, dvpp: bool) -> ImageChain:
    normalize = (data.mean, data.std) if data.normalize_on == "host" else None
    pictures = {name: step for name, step in chain.steps.items() if name != MIX}
    return ImageChain(pictures, image_size, Operators(dvpp), normalize, chain.stages)


def _mixing(chain: Chain, classes: int, seed: int, steps: int, rank: int) -> Callable[[int, Columns], Columns] | None:
    """What mixes a batch; in epochs where the step is off, labels are probabilities all the same (one graph)."""
    mix, stage = chain.steps.get(MIX), chain.stages.get(MIX, Stage())
    if mix is None or not mix.enabled:
        return None

    def mixed(row: int, columns: Columns) -> Columns:
        images, labels = columns
        epoch, step = divmod(row, steps)
        if epoch not in stage:
            return images, one_hot(labels, classes)
        return mix(np.random.default_rng([seed, epoch, step, rank, _MIXING]), images, labels, classes)

    return mixed


def _too_few(split: LabelledImages, batch_size: int, ranks: int) -> str:
    count = len(split.paths)
    if count == 0:
        return "there are no pictures to train on: dataset.root has no train folder."
    needed = f"batch_size={batch_size}" + (f" on {ranks} ranks" if ranks > 1 else "")
    allowed = f"set batch_size to at most {count // ranks}" if count >= ranks else f"use at most {count} ranks"
    return f"the {split.name} split has {count} pictures, fewer than one batch ({needed}): {allowed}."
