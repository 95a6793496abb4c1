"""All checks of a dataset, in the order in which they are shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.common.status import FAIL, PASS
from msrun_cli.data.decode_check import decode_images, decoders_heard
from msrun_cli.data.doctor.anchors import AnchorFit, anchor_check, box_sizes, fit_anchors
from msrun_cli.data.doctor.boxes import background, box_checks, label_notes
from msrun_cli.data.doctor.checked import CheckedData
from msrun_cli.data.doctor.classes import class_checks, split_checks
from msrun_cli.data.doctor.copies import copy_checks
from msrun_cli.data.doctor.files import file_checks
from msrun_cli.data.doctor.findings import Example, Finding, skipped
from msrun_cli.data.doctor.statistics import statistics
from msrun_cli.data.scan import ImageLook, look_at_images

Advance = Callable[[int], None]
Stage = Callable[[str, int], Advance]
"""(what is done, number of images) -> a function that is told how many more are done."""

_LABEL_CHECKS = ("labels", "tiny_boxes", "covering_boxes", "duplicate_boxes", "ambiguous_boxes", "background")
_CLASS_CHECKS = ("unused_classes", "unseen_classes", "imbalance")
_SPLIT_CHECKS = ("few_images", "train_is_val")


@dataclass(frozen=True)
class CheckOptions:
    """image_size, tiny_pixels: pixels; covering: part of an image; imbalance, anchor_threshold: ratios.

    anchors: (A, 2) width and height in pixels, smallest level first, None for a model without; anchor_key: the setting
    that takes others, None where there is none. workers: None = by the number of cores
    """

    image_size: int
    batch_size: int
    deep: bool
    near_duplicates: bool
    workers: int | None
    tiny_pixels: float
    covering: float
    imbalance: float
    anchors: np.ndarray | None
    anchors_per_level: int
    anchor_threshold: float
    anchor_key: str | None


@dataclass(frozen=True)
class Examination:
    """findings: in the order of the table; statistics: for JSON; looks: what the scan saw, for each split."""

    data: CheckedData
    findings: list[Finding]
    statistics: dict[str, Any]
    looks: dict[str, list[ImageLook]]
    anchors: AnchorFit | None


def examine(data: CheckedData, refusal: DataError | None, options: CheckOptions, stage: Stage) -> Examination:
    """refusal: why the reader gave up; then only the files are checked."""
    looks = _scan(data, options, stage)
    if options.deep:
        looks = _decode(data, looks, options, stage)
    total = sum(len(split.records) for split in data.splits)
    advance = stage("comparing images", total) if options.near_duplicates else None
    with decoders_heard() as complaints:
        copies = copy_checks(data, looks, options.near_duplicates, options.workers or os.cpu_count() or 1, advance)
    fit = _anchors(data, options)
    findings = [
        _reader(data, refusal),
        *file_checks(data, looks, [] if options.deep else complaints),
        *_label_checks(data, looks, options),
        *copies,
        _anchor_finding(data, fit, options),
    ]
    return Examination(data, findings, statistics(data, looks), looks, fit)


def _scan(data: CheckedData, options: CheckOptions, stage: Stage) -> dict[str, list[ImageLook]]:
    advance = stage("looking at files", sum(len(split.records) for split in data.splits))
    return {
        split.name: look_at_images(split.records, workers=options.workers, progress=advance) for split in data.splits
    }


def _decode(
    data: CheckedData, looks: dict[str, list[ImageLook]], options: CheckOptions, stage: Stage
) -> dict[str, list[ImageLook]]:
    """The looks, with the faults that only decoding shows."""
    fine = {name: [i for i, look in enumerate(found) if look.fault is None] for name, found in looks.items()}
    advance = stage("decoding images", sum(map(len, fine.values())))
    result = {name: list(found) for name, found in looks.items()}
    for split in data.splits:
        faults = decode_images(split.records, fine[split.name], workers=options.workers, progress=advance)
        for fault in faults:
            old = looks[split.name][fault.index]
            result[split.name][fault.index] = ImageLook(old.format, old.width, old.height, fault)
    return result


def _reader(data: CheckedData, refusal: DataError | None) -> Finding:
    if refusal is None:
        return Finding("reader", PASS, 0, "the annotations could be read")
    text, _, rest = str(refusal).partition("\n")
    lines = [line.strip() for line in rest.splitlines() if line.strip()]
    examples = (Example(text), *(Example(line) for line in lines))
    found = len(data.train.records)
    summary = f"the annotations could not be read; checked instead: {found} image files without them"
    return Finding("reader", FAIL, 1, summary, examples, "correct this first, then check again")


def _label_checks(data: CheckedData, looks: dict[str, list[ImageLook]], options: CheckOptions) -> list[Finding]:
    if data.task == "files":
        names = (*_LABEL_CHECKS, *_CLASS_CHECKS, *_SPLIT_CHECKS)
        return [skipped(check, "the annotations could not be read") for check in names]
    of_classes = class_checks(data, options.imbalance)
    of_splits = split_checks(data, options.batch_size)
    if data.task == "classification":
        without = [skipped(check, "a dataset without boxes") for check in _LABEL_CHECKS[1:]]
        return [label_notes(data, looks), *without, *of_classes, *of_splits]
    of_boxes = box_checks(data, options.image_size, options.tiny_pixels, options.covering)
    return [label_notes(data, looks), *of_boxes, background(data), *of_classes, *of_splits]


def _anchors(data: CheckedData, options: CheckOptions) -> AnchorFit | None:
    if options.anchors is None or data.task != "detection":
        return None
    sizes = box_sizes(data, options.image_size)
    return fit_anchors(sizes, options.anchors, options.anchor_threshold) if len(sizes) else None


def _anchor_finding(data: CheckedData, fit: AnchorFit | None, options: CheckOptions) -> Finding:
    reason = "the model has no anchors" if options.anchors is None else "there are no boxes"
    override = None
    if fit is not None and fit.proposal is not None and options.anchor_key is not None:
        levels = fit.proposal.astype(int).reshape(-1, options.anchors_per_level, 2).tolist()
        override = f"use them: {options.anchor_key}={str(levels).replace(' ', '')}"
    return anchor_check(fit, override, reason)


def offenders(findings: Sequence[Finding]) -> list[tuple[str, list[Example]]]:
    """(check, its cases about one record) that are worth a picture; checks take turns, each record comes once."""
    cases: list[list[tuple[str, list[Example]]]] = []
    for item in findings:
        of_record: dict[tuple[str | None, int], list[Example]] = {}
        for example in item.examples if item.status != PASS else ():
            if example.index is not None:
                of_record.setdefault((example.split, example.index), []).append(example)
        cases.append([(item.check, examples) for examples in of_record.values()])
    found: dict[tuple[str | None, int | None], tuple[str, list[Example]]] = {}
    for turn in range(max(map(len, cases), default=0)):
        for of_check in cases:
            if turn < len(of_check):
                first = of_check[turn][1][0]
                found.setdefault((first.split, first.index), of_check[turn])
    return list(found.values())
