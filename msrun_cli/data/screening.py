"""Leaves bad samples out of a dataset before training, or refuses it: the policy is that of `BadSamples`."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from msrun_cli.common.files import atomic_path, cache_dir
from msrun_cli.data.bad_samples import BadSamples
from msrun_cli.data.record_table import RecordTable
from msrun_cli.data.records import BadSample, DetectionData, Record, Split
from msrun_cli.data.scan import ImageFault, scan_images

# Raise it when the check of the images becomes stricter: what passed an older one is then checked again.
SCAN_VERSION = 1

_WORTH_A_WORD = 2000  # images

log = logging.getLogger("msrun")


def screen(
    data: DetectionData, bad: BadSamples, *, check_images: bool, splits: Sequence[str] = ("train", "val")
) -> DetectionData:
    """The data without bad samples, with sentences on them in its notes, and with the policy for training.

    check_images: look at every image file first; images that passed and did not change are not opened again
    splits: those that will be used; the others are left as they are
    Raises DataError as `BadSamples.judge` does.
    """
    chosen = {name: split for name, split in (("train", data.train), ("val", data.val)) if name in splits}
    found: dict[str, Sequence[BadSample]] = {}
    kept: dict[str, Split] = {}
    for name, split in chosen.items():
        if name == "val" and "train" in chosen and split.records is data.train.records:
            kept[name] = replace(split, records=kept["train"].records)  # there is no val split: said, not checked twice
            continue
        faults = scan_new_images(split.records) if check_images else []
        found[name] = [*split.faults, *(BadSample(fault.path, fault.reason) for fault in faults)]
        kept[name] = replace(split, records=_without(split.records, faults), faults=())
    totals = {name: len(chosen[name].records) + len(chosen[name].faults) for name in found}
    notes = bad.judge(found, totals)
    return replace(data, **kept, notes=(*data.notes, *notes), bad_samples=bad)


def scan_new_images(records: Sequence[Record]) -> list[ImageFault]:
    """The faults of the images; those that passed before with the same path, size and time are taken as good."""
    states = _states(records)
    path = cache_dir() / "images" / f"{_place(records)}.npy"
    passed = _load(path)
    new = np.flatnonzero((states == 0) | ~np.isin(states, passed))
    if not len(new):
        return []
    if len(new) >= _WORTH_A_WORD:
        log.info("checking %d image files (dataset.check_images=false leaves that out) ...", len(new))
    faults = [
        ImageFault(int(new[fault.index]), fault.path, fault.kind, fault.reason)
        for fault in scan_images(_chosen(records, new))
    ]
    bad = np.array([fault.index for fault in faults], np.int64)
    good = np.setdiff1d(np.delete(states, bad), np.zeros(1, np.uint64))
    others = (
        passed if len(passed) < 4 * len(states) + 1000 else passed[:0]
    )  # other splits in these folders; not for ever
    _store(path, np.union1d(good, others))
    return faults


def _states(records: Sequence[Record]) -> np.ndarray:
    """uint64 (R,): a hash of path, size, time and annotated width and height of each image; 0 = it is not there."""
    found = np.zeros(len(records), np.uint64)
    for index, record in enumerate(records):
        try:
            state = os.stat(record.image_path)
        except (OSError, ValueError):
            continue
        facts = (os.path.abspath(record.image_path), state.st_size, state.st_mtime_ns, record.width, record.height)
        digest = hashlib.blake2b("\0".join(map(str, facts)).encode(errors="surrogateescape"), digest_size=8)
        found[index] = int.from_bytes(digest.digest(), "little")
    return found


def _place(records: Sequence[Record]) -> str:
    folders = sorted({os.path.dirname(os.path.abspath(record.image_path)) for record in records})
    text = "\0".join([str(SCAN_VERSION), *folders])
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]


def _load(path: Path) -> np.ndarray:
    nothing = np.zeros(0, np.uint64)
    try:
        found = np.load(path, allow_pickle=False)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return nothing  # writing will say what is wrong with the folder
    except (OSError, ValueError, EOFError, MemoryError):
        found = None
    if not isinstance(found, np.ndarray) or found.dtype != np.uint64 or found.ndim != 1:
        log.warning("the list of checked images %s is damaged and is made anew", path)
        return nothing
    return found


def _store(path: Path, states: np.ndarray) -> None:
    try:
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.save(file, states)
    except OSError as error:
        log.warning(
            "%s cannot be written (%s); all images are checked again next time. Set MSRUN_CACHE_DIR to a folder that "
            "can be written.",
            path.parent,
            error.strerror,
        )


def _without(records: Sequence[Record], faults: list[ImageFault]) -> Sequence[Record]:
    if not faults:
        return records
    bad = {fault.index for fault in faults}
    return _chosen(records, np.array([index for index in range(len(records)) if index not in bad], np.int64))


def _chosen(records: Sequence[Record], indices: np.ndarray) -> Sequence[Record]:
    return records.select(indices) if isinstance(records, RecordTable) else tuple(records[index] for index in indices)
