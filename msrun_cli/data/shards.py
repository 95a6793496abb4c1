"""Which images a batch of a rank holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from msrun_cli.common.errors import DataError

Indices = Callable[[int], np.ndarray]  # the number of a batch -> what it holds


def training_rows(
    count: int, batch_size: int, shard: tuple[int, int], *, split: str, first_step: int = 0
) -> tuple[int, Indices]:
    """Steps of an epoch, and the positions that each batch of this rank holds; positions count on over the epochs.

    count: images of an epoch; what does not fill a batch on every rank is left out
    batch_size: images per rank
    shard: (rank, number of ranks); rank r of n takes the positions r::n, so n x B gives the batches of 1 x nB
    split, first_step: for messages: the name of the split, and the step of the epoch to go on from
    Raises DataError where an epoch has no batch.
    """
    rank, ranks = shard
    steps = count // (batch_size * ranks)
    if steps == 0:
        raise DataError(_too_few(split, count, batch_size, ranks))
    if not 0 <= first_step < steps:
        raise ValueError(f"first_step={first_step} is not inside an epoch of {steps} steps")

    def positions_of(row: int) -> np.ndarray:
        epoch, step = divmod(row, steps)
        first = epoch * count + step * batch_size * ranks
        return np.arange(first + rank, first + batch_size * ranks, ranks)

    return steps, positions_of


def evaluation_rows(count: int, batch_size: int, shard: tuple[int, int], *, split: str) -> tuple[int, Indices]:
    """Batches of this rank, and the indices (r::n of `count`) that each holds; the last one may be smaller.

    Raises DataError where the rank has no image.
    """
    rank, ranks = shard
    indices = np.arange(count)[rank::ranks]
    if not len(indices):
        raise DataError(f"the {split} split has no images for rank {rank} of {ranks}: nothing to evaluate.")
    return -(-len(indices) // batch_size), lambda row: indices[row * batch_size : (row + 1) * batch_size]


def _too_few(split: str, count: int, batch_size: int, ranks: int) -> str:
    needed = f"batch_size={batch_size}" + (f" on {ranks} ranks" if ranks > 1 else "")
    allowed = f"set batch_size to at most {count // ranks}" if count >= ranks else f"use at most {count} ranks"
    return f"the {split} split has {count} images, fewer than one batch ({needed}): {allowed}."
