"""Checks image files without decoding them: are they there, readable, complete, and of the annotated size?"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from msrun_cli.common.errors import DataError
from msrun_cli.data.images import check_image
from msrun_cli.data.records import Record


@dataclass(frozen=True)
class ImageFault:
    """index: position among the records; kind: missing, unreadable, damaged or size; reason: a sentence."""

    index: int
    path: str
    kind: str
    reason: str


def scan_images(
    records: Sequence[Record], *, workers: int | None = None, progress: Callable[[int], None] | None = None
) -> list[ImageFault]:
    """The records whose image cannot be used, in their order.

    workers: threads, None = one per core; progress: called with the number of images checked so far
    """
    found: list[ImageFault] = []
    with ThreadPoolExecutor(workers or os.cpu_count() or 1, thread_name_prefix="msrun-scan") as pool:
        for index, fault in enumerate(pool.map(_fault, range(len(records)), records, chunksize=1)):
            if fault is not None:
                found.append(fault)
            if progress is not None:
                progress(index + 1)
    return found


def _fault(index: int, record: Record) -> ImageFault | None:
    try:
        check_image(record.image_path, record.width, record.height)
    except DataError as error:
        return ImageFault(index, record.image_path, _kind(record.image_path, error), str(error))
    return None


def _kind(path: str, error: DataError) -> str:
    if isinstance(error.__cause__, OSError):
        return "unreadable" if os.path.lexists(path) else "missing"
    return "size" if "its annotations are for" in str(error) else "damaged"
