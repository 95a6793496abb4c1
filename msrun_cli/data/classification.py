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
from msrun_cli.data.shards import evaluation_rows, training_rows
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
    split = data.train
    if not split.paths:
        raise DataError("there are no images to train on: dataset.root has no train folder.")
    steps, positions_of = training_rows(len(split.paths), batch_size, shard, split=split.name, first_step=first_step)
    samples = TrainImages(split, _image_chain(data, chain, image_size, dvpp), seed, bad)
    return Batches(
        BatchRows(samples, positions_of, steps, _mixing(chain, len(data.class_names), seed, steps, shard[0])),
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
    number, indices_of = evaluation_rows(len(split.paths), batch_size, shard, split=split.name)
    rows = BatchRows(EvalImages(split, _image_chain(data, chain, image_size, dvpp), bad), indices_of, number)
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
