"""Checks of the classes and of the split into train and val."""

from __future__ import annotations

import numpy as np

from msrun_cli.common.status import FAIL, WARN
from msrun_cli.data.doctor.checked import CheckedData, CheckedSplit
from msrun_cli.data.doctor.findings import Example, Finding, finding, skipped


def class_counts(split: CheckedSplit, classes: int) -> np.ndarray:
    """int64 (classes,): boxes (in classification images) of each class, crowds left out."""
    return np.bincount(split.classes[~split.crowds], minlength=classes)


def class_checks(data: CheckedData, most_imbalance: float) -> list[Finding]:
    """most_imbalance: largest ratio of the commonest to the rarest class of train that is no warning."""
    train, val = (class_counts(split, len(data.class_names)) for split in (data.train, data.val))
    unused = np.flatnonzero(train + val == 0)
    unseen = np.flatnonzero((train == 0) & (val > 0))
    return [
        finding(
            "unused_classes",
            WARN,
            [Example(data.class_names[index]) for index in unused],
            f"of {len(data.class_names)} classes appear in no image",
            "remove them from the list of classes, unless the model needs them",
        ),
        _unseen(data, unseen, val),
        _imbalance(data, train, most_imbalance),
    ]


def _unseen(data: CheckedData, unseen: np.ndarray, val: np.ndarray) -> Finding:
    if data.same or not len(data.train.records):
        return skipped("unseen_classes", "there are not two splits")
    return finding(
        "unseen_classes",
        WARN,
        [Example(f"{data.class_names[index]}: {val[index]} in val, none in train") for index in unseen],
        "classes in val but not in train: their score will be 0",
        "split the data anew, so that each class is in both",
    )


def _imbalance(data: CheckedData, counts: np.ndarray, most: float) -> Finding:
    present = np.flatnonzero(counts)
    if len(present) < 2:
        return finding("imbalance", WARN, [], "", "")
    commonest, rarest = present[np.argmax(counts[present])], counts[present].min()
    ratio = counts[commonest] / rarest
    rare = [
        index
        for index in present[np.argsort(counts[present], kind="stable")]
        if counts[commonest] > most * counts[index]
    ]
    if not rare:
        return Finding("imbalance", "pass", 0, f"commonest to rarest class of train: {ratio:.1f}")
    return finding(
        "imbalance",
        WARN,
        [Example(f"{data.class_names[index]}: {counts[index]}") for index in rare],
        f"classes {most:g} times rarer than {data.class_names[commonest]} ({counts[commonest]}); ratio {ratio:.0f}",
        "collect more of them, merge classes, or judge by the metric per class",
    )


def split_checks(data: CheckedData, batch_size: int) -> list[Finding]:
    count = len(data.train.records)
    short = [Example(f"train has {count} images, a batch {batch_size}")] if count < batch_size else []
    same = [Example(f"train and val are the same {count} images")] if data.same else []
    only_val = not count and len(data.val.records) > 0
    return [
        finding(
            "few_images",
            WARN if only_val else FAIL,
            short,
            f"fewer training images than batch_size={batch_size}",
            f"set batch_size to at most {count}" if count else "give a train split: only evaluation is possible",
        ),
        finding("train_is_val", WARN, same, "evaluation would run on the training images", "give a val split"),
    ]
