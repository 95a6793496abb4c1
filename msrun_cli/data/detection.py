"""Records -> MindSpore datasets of detection batches (their columns: data/records.py)."""

from __future__ import annotations

import cv2
import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.bad_samples import BadSamples
from msrun_cli.data.pictures import AS_IN_THE_FILES, Fit, Pictures, Reading, cache_of
from msrun_cli.data.pipeline import Batches, LoaderOptions
from msrun_cli.data.record_table import trained_counts
from msrun_cli.data.records import Split
from msrun_cli.data.rows import BatchRows
from msrun_cli.data.samples import EvalSamples, TrainSamples
from msrun_cli.data.shards import evaluation_rows, training_rows
from msrun_cli.transforms.chain import Chain

TRAIN_COLUMNS = ["images", "targets"]
EVAL_COLUMNS = ["images", "index", "geometry"]

# The loss costs time and memory for each of the M rows of a picture, full or not. Up to here the true bound is cheap.
_CHEAP_BOXES = 200
# Beyond it, M fits all but this part of the pictures that random merging gives (of the densest ones boxes are cut,
# counted and said).
_RARE = 1e-4
_MOST_RECENT_BYTES = 1 << 29
_LEAST_WINDOW = 64


def train_pipeline(
    split: Split,
    transforms: Chain,
    *,
    image_size: int,
    batch_size: int,
    max_boxes: int,
    seed: int,
    loader: LoaderOptions,
    first_epoch: int = 0,
    first_step: int = 0,
    shard: tuple[int, int] = (0, 1),
    reading: Reading = AS_IN_THE_FILES,
    bad: BadSamples | None = None,
) -> Batches:
    """Endless epochs of shuffled batches `images`, `targets`; what does not fill a batch on every rank is left out.

    batch_size: images per rank
    first_epoch, first_step: go on from this batch of this epoch as if the earlier ones had been read. The first epoch
        is then `first_step` batches shorter than get_dataset_size() says (sink mode only starts at multiples of its
        sink size: use first_step 0 there).
    shard: (rank, number of ranks), see data.shards
    bad: what is done about images that turned bad; None = a DataError
    Every iterator continues with the next epochs: see Batches.
    """
    if not len(split.records):
        raise DataError(
            f"the {split.name} split has no images: set dataset.train.annotations and dataset.train.images."
        )
    steps, positions_of = training_rows(len(split.records), batch_size, shard, split=split.name, first_step=first_step)
    window = partner_window_of(reading.partner_window, len(split.records), image_size, batch_size * shard[1])
    # Before workers are forked: a child with OpenCV's thread pool of its parent can hang.
    cv2.setNumThreads(0)
    fit = None if transforms.fit is None else Fit(image_size, transforms.fit, reading.reduced)
    samples = TrainSamples(
        Pictures(
            split.records,
            fit,
            recent_bytes=_recent_bytes(image_size, loader) if transforms.merges > 1 else 0,
            cache=cache_of(split, fit, reading),
        ),
        transforms,
        image_size=image_size,
        max_boxes=max_boxes,
        seed=seed,
        partner_window=window,
        bad=bad,
    )
    batches = Batches(
        BatchRows(samples, positions_of, steps),
        TRAIN_COLUMNS,
        loader,
        batch_size=batch_size,
        first_epoch=first_epoch,
        first_step=first_step,
        after_batch=samples.cuts.say,
        what="training",
    )
    samples.cuts.forget()  # those of a measurement
    return batches


def eval_pipeline(
    split: Split,
    transforms: Chain,
    *,
    image_size: int,
    batch_size: int,
    loader: LoaderOptions,
    shard: tuple[int, int] = (0, 1),
    bad: BadSamples | None = None,
) -> Batches:
    """One pass in order over every record of this rank (r::n), as `images`, `index`, `geometry`; the last batch may be
    smaller. No record is read twice, so ranks may get one record more or less than others. An image that turned bad has
    the index -1, unless `bad` (None = a DataError) says otherwise."""
    number, indices_of = evaluation_rows(len(split.records), batch_size, shard, split=split.name)
    cv2.setNumThreads(0)
    samples = EvalSamples(Pictures(split.records), transforms, image_size=image_size, bad=bad)
    rows = BatchRows(samples, indices_of, number)
    return Batches(rows, EVAL_COLUMNS, loader, batch_size=batch_size, what=f"evaluation of {split.name}")


def max_boxes_of(split: Split, transforms: Chain) -> int:
    """M: how many target rows a picture needs, a multiple of 8, at least 8.

    The true bound is the largest number of boxes of a record times the pictures that the chain merges. Where that is
    more than 200 rows, a mosaic of the densest pictures only is as good as never drawn: then the number that 9999 of
    10000 random merges stay within, from the distribution of the sum of independent draws. The pipeline counts and says
    what is cut.
    """
    counts = trained_counts(split.records) if len(split.records) else np.zeros(1, np.int64)
    most = int(counts.max()) * transforms.merges
    if most > _CHEAP_BOXES and transforms.merges > 1:
        one = np.bincount(counts) / len(counts)
        merged = one
        for _ in range(transforms.merges - 1):
            merged = np.convolve(merged, one)
        fitting = int(np.searchsorted(np.cumsum(merged), 1 - _RARE))
        # A picture that is not merged (probability < 1) must always fit.
        most = min(most, max(fitting, int(counts.max())))
    return max(8, -(-most // 8) * 8)


def partner_window_of(wanted: int | str | None, count: int, image_size: int, batch_size: int) -> int | None:
    """Neighbours in the epoch's order among which pictures find partners; None = all `count` pictures.

    wanted: the setting; "auto" = as many as half a GiB of decoded pictures holds, the batches being made included, so
        that each is decoded about once an epoch and the draw is as near to uniform as that allows
    batch_size: of all ranks together
    """
    if wanted != "auto":
        return wanted  # type: ignore[return-value]
    fitting = _MOST_RECENT_BYTES // _picture_bytes(image_size)
    return None if fitting >= count else max(_LEAST_WINDOW, fitting - 2 * batch_size)


def _recent_bytes(image_size: int, loader: LoaderOptions) -> int:
    """Memory for decoded pictures that are wanted again; processes have it each for themselves and share the bound."""
    processes = loader.workers if loader.python_multiprocessing and isinstance(loader.workers, int) else 1
    return max(_MOST_RECENT_BYTES // processes, _LEAST_WINDOW * _picture_bytes(image_size))


def _picture_bytes(image_size: int) -> int:
    return 3 * image_size**2
