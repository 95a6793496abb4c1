"""From logits to top-1, top-5, accuracy per class and the confusion matrix."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msrun_cli.common.errors import DataError

if TYPE_CHECKING:
    from msrun_cli.data.imagefolder import ImageFolderData, LabelledImages

Predict = Callable[[np.ndarray], np.ndarray]
Progress = Callable[[int, int], None]
Gather = Callable[[tuple[np.ndarray, ...]], list[tuple[np.ndarray, ...]]]
log = logging.getLogger("msrun")


@dataclass(frozen=True, slots=True)
class ClassificationResult:
    """What an evaluation found.

    metrics: top1, top5, mean_class_accuracy (each class counts the same), 0..1.
    images: how many different pictures were evaluated.
    confusion: int64 (C, C + 1), row = true class, column = predicted class; the last column counts pictures whose
        logits were not finite.
    predicted: int32 (N,), aligned with the split, -1 = not evaluated or not finite; probability: float32 (N,) of it.
    predict_s: seconds of the network, copies included.
    """

    metrics: dict[str, float]
    images: int
    confusion: np.ndarray
    predicted: np.ndarray
    probability: np.ndarray
    predict_s: float

    @property
    def images_per_s(self) -> float:
        return self.images / self.predict_s


class ClassificationEvaluator:
    """Counts correct answers. A picture whose logits are not finite counts as wrong, which is said."""

    def __call__(
        self,
        predict: Predict,
        batches: Iterable[Mapping[str, np.ndarray]],
        split: LabelledImages,
        data: ImageFolderData,
        progress: Progress | None = None,
        gather: Gather | None = None,
    ) -> ClassificationResult:
        """Evaluate the pictures that `batches` holds.

        predict: images -> logits float32 (B, C).
        batches: images, labels int32 (B,), index int32 (B,) into the split. The last batch may be smaller. A picture
            that comes again (padding of shards) counts once; a label or an index below 0 is left out.
        progress: called after each batch with the pictures done and the pictures in the split.
        gather: gives the arrays of all ranks, each of which evaluates a part of the pictures; None = there is one rank.

        Raises:
            DataError: another number of logits than classes, or nothing to evaluate.
        """
        classes, count = len(data.class_names), len(split.paths)
        labels = np.full(count, -1, np.int32)
        ranks = np.full(count, classes, np.int64)
        predicted = np.full(count, -1, np.int32)
        probability = np.zeros(count, np.float32)
        predict_s = 0.0
        for batch in batches:
            started = time.perf_counter()
            logits = np.asarray(predict(batch["images"]))
            predict_s += time.perf_counter() - started
            _check_classes(logits, classes)
            use = (batch["labels"] >= 0) & (batch["index"] >= 0)
            logits, true, index = logits[: len(use)][use], batch["labels"][use], batch["index"][use]
            labels[index] = true
            ranks[index], predicted[index], probability[index] = ranks_of(logits, true)
            if progress is not None:
                progress(int((labels >= 0).sum()), count)
        if gather is not None:
            (labels, ranks, predicted, probability), predict_s = _merged(
                (labels, ranks, predicted, probability), predict_s, gather
            )
        seen = labels >= 0
        if not seen.any():
            raise DataError(f"no picture of the {split.name} split could be evaluated.")
        broken = int((predicted[seen] < 0).sum())
        if broken:
            log.warning(
                "%d of %d pictures got logits that are not finite (NaN or Inf): they count as wrong. "
                "Lower amp level or learning rate, or check the weights.",
                broken,
                int(seen.sum()),
            )
        confusion = confusion_matrix(labels[seen], predicted[seen], classes)
        metrics = {
            "top1": float((ranks[seen] == 0).mean()),
            "top5": float((ranks[seen] < 5).mean()),
            "mean_class_accuracy": float(np.nanmean(class_accuracy(confusion))),
        }
        return ClassificationResult(metrics, int(seen.sum()), confusion, predicted, probability, predict_s)


def _merged(columns: tuple[np.ndarray, ...], predict_s: float, gather: Gather) -> tuple[tuple[np.ndarray, ...], float]:
    """Columns (labels first, -1 = not seen) over all pictures from those of each rank; seconds of the slowest rank."""
    merged = tuple(column.copy() for column in columns)
    spent = 0.0
    for *others, seconds in gather((*columns, np.array(predict_s))):
        seen = others[0] >= 0
        for column, other in zip(merged, others, strict=True):
            column[seen] = other[seen]
        spent = max(spent, float(seconds))
    return merged, spent


def ranks_of(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(how many classes stand before the true one, predicted class, its probability), each (B,).

    Equal logits stand in the order of the classes, so that a constant network is right about class 0 alone. Logits that
    are not finite: rank C, class -1, probability 0.
    """
    good = np.isfinite(logits).all(axis=1)
    values = np.where(good[:, None], logits, 0).astype(np.float64)
    true = np.take_along_axis(values, labels[:, None].astype(np.int64), axis=1)
    before = np.arange(logits.shape[1])[None] < labels[:, None]
    ranks = ((values > true) | ((values == true) & before)).sum(axis=1)
    predicted = values.argmax(axis=1)
    shifted = np.exp(values - values.max(axis=1, keepdims=True))
    probability = 1 / shifted.sum(axis=1)
    return (
        np.where(good, ranks, logits.shape[1]),
        np.where(good, predicted, -1).astype(np.int32),
        np.where(good, probability, 0).astype(np.float32),
    )


def confusion_matrix(labels: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """int64 (C, C + 1) counts; predicted -1 goes to the last column."""
    columns = np.where(predicted < 0, classes, predicted).astype(np.int64)
    cells = np.bincount(labels.astype(np.int64) * (classes + 1) + columns, minlength=classes * (classes + 1))
    return cells.reshape(classes, classes + 1)


def class_accuracy(confusion: np.ndarray) -> np.ndarray:
    """float64 (C,) share of each class's pictures that are right; NaN where there are none."""
    totals = confusion.sum(axis=1)
    right = np.diagonal(confusion).astype(np.float64)
    return np.divide(right, totals, out=np.full(len(totals), np.nan), where=totals > 0)


def _check_classes(logits: np.ndarray, classes: int) -> None:
    if logits.ndim != 2 or logits.shape[1] != classes:
        raise DataError(
            f"The network gives outputs of shape {logits.shape}, but data with {classes} classes needs "
            f"(pictures, {classes}). Use weights that were trained on this data's classes."
        )
