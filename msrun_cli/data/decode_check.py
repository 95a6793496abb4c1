"""Decode whole image files and listen to what the decoders say, in processes of their own.

libjpeg and libpng fill what is damaged in the middle of a file and only print a line about it; it goes to file
descriptor 2 of the process, so each file needs that descriptor for itself while it is decoded.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import cv2
import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.records import Record
from msrun_cli.data.scan import ImageFault, image_fault

_CHUNK = 16  # files per task of a process
_MOST_HEARD = 1 << 16  # bytes
# Remarks of libpng about colour profiles and texts do not touch the pixels.
_HARMLESS = re.compile(r"^libpng warning: (?!.*(CRC|IDAT))")


def decode_images(
    records: Sequence[Record],
    indices: Sequence[int],
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[ImageFault]:
    """Faults ("damaged") of records[i] for i in `indices`: what cannot be decoded, and what only in part.

    workers: processes; None = one per core. Raises DataError when a decoder brings its process down.
    """
    chunks = [list(indices[start : start + _CHUNK]) for start in range(0, len(indices), _CHUNK)]
    count = min(workers or os.cpu_count() or 1, max(1, len(chunks)))
    found: list[ImageFault] = []
    # spawn: forking a process with threads of numpy or MindSpore can hang
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, initializer=_listen_to_decoders) as pool:
        futures = {pool.submit(_decode, [records[index].image_path for index in chunk]): chunk for chunk in chunks}
        try:
            for future in as_completed(futures):
                chunk = futures[future]
                complaints = zip(chunk, future.result(), strict=True)
                found += [image_fault(i, records[i].image_path, "damaged", text) for i, text in complaints if text]
                if progress is not None:
                    progress(len(chunk))
        except BrokenProcessPool as error:
            first, last = records[chunk[0]].image_path, records[chunk[-1]].image_path
            raise DataError(
                f"a decoder crashed on a file between {first} and {last}. Remove the damaged one."
            ) from error
        except BaseException:  # Ctrl-C too
            pool.shutdown(cancel_futures=True)
            raise
    return sorted(found, key=lambda fault: fault.index)


@contextmanager
def decoders_heard() -> Iterator[list[str]]:
    """Complaints that decoders print while this is open, for files that are decoded in this process; filled at its end.

    Whatever else is written to file descriptor 2 meanwhile is lost.
    """
    complaints: list[str] = []
    with tempfile.TemporaryFile() as heard:
        kept = os.dup(2)
        os.dup2(heard.fileno(), 2)
        try:
            yield complaints
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            heard.seek(0)
            complaints += _complaints(heard.read(_MOST_HEARD))


def _listen_to_decoders() -> None:
    """Send file descriptor 2 of this process into a file that is read after each image."""
    heard = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
    os.dup2(heard.fileno(), 2)
    cv2.setLogLevel(0)
    cv2.setNumThreads(0)


def _decode(paths: Sequence[str]) -> list[str]:
    return [_complaint(path) for path in paths]


def _complaint(path: str) -> str:
    """What is wrong with the file, "" if nothing."""
    os.ftruncate(2, 0)
    os.lseek(2, 0, os.SEEK_SET)
    try:
        image = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except cv2.error as error:
        return f"cannot be decoded: {error.err}"
    said = _complaints(os.pread(2, _MOST_HEARD, 0))
    if image is None:
        return f"cannot be decoded{': ' + said[0] if said else ''}: copy it again or remove it"
    return f"is damaged, its decoder says: {said[0]}" if said else ""


def _complaints(heard: bytes) -> list[str]:
    lines = heard.decode("utf-8", errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip() and not _HARMLESS.match(line)]
