"""Look at image files without decoding them: is each there, whole, an image, and of the annotated size?"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np

from msrun_cli.data.file_kinds import is_image_format, kind_of
from msrun_cli.data.headers import Header, peek_of, read_header
from msrun_cli.data.records import Record

# What ImageFault.kind may be, and what it means.
FAULT_KINDS = {
    "missing": "the file does not exist",
    "broken_link": "a symbolic link that leads nowhere",
    "unreadable": "the file exists but cannot be read",
    "empty": "a file of 0 bytes",
    "not_an_image": "HTML, text, an archive, a folder ...",
    "unsupported": "an image in a format that this OpenCV does not read",
    "truncated": "the end of the image is missing",
    "damaged": "the image cannot be decoded, or only in part",
    "huge": "more pixels than OpenCV reads",
    "size": "other width and height than the annotations say",
}

_CHUNK = 128  # records per task of a thread
_MOST_THREADS = 8


@dataclass(frozen=True)
class ImageFault:
    """index: of the record; kind: a key of FAULT_KINDS; reason: a sentence that begins with the path."""

    index: int
    path: str
    kind: str
    reason: str


def image_fault(index: int, path: str, kind: str, clause: str) -> ImageFault:
    return ImageFault(index, path, kind, f"{path} {clause}.")


@dataclass(frozen=True, slots=True)
class ImageLook:
    """What the look at one file gave.

    format: of the content ("JPEG", "PNG", ...), "" when there is none; width, height: shown upright, 0 = unknown
    """

    format: str
    width: int
    height: int
    fault: ImageFault | None


def scan_images(
    records: Sequence[Record], *, workers: int | None = None, progress: Callable[[int], None] | None = None
) -> list[ImageFault]:
    """Faults of the records' files in the order of the records, at most one for each.

    JPEG, PNG, WebP and BMP are judged by their headers and ends; other formats, and files with an unusual or damaged
    header, are decoded. What OpenCV reads is fine whatever its suffix. A size fault means that the picture fits its
    annotations neither upright nor as stored (as in read_rgb); records of width or height 0 have no such check.
    workers: threads; None = four per core, at most 8: with a slow disk more threads wait at once
    progress: called from this thread with the number of records done since the last call
    """
    looks = look_at_images(records, workers=workers, progress=progress)
    return [look.fault for look in looks if look.fault is not None]


def look_at_images(
    records: Sequence[Record], *, workers: int | None = None, progress: Callable[[int], None] | None = None
) -> list[ImageLook]:
    """What scan_images saw, for every record: also format and size."""
    count = workers or min(_MOST_THREADS, 4 * (os.cpu_count() or 1))
    found: dict[int, list[ImageLook]] = {}
    with _silent_opencv(), ThreadPoolExecutor(count, thread_name_prefix="msrun-scan") as pool:
        futures = {
            pool.submit(_look_at_chunk, records, start, min(start + _CHUNK, len(records))): start
            for start in range(0, len(records), _CHUNK)
        }
        try:
            for future in _as_they_finish(set(futures)):
                found[futures[future]] = future.result()
                if progress is not None:
                    progress(len(future.result()))
        except BaseException:  # Ctrl-C too: do not first look at all the others
            pool.shutdown(cancel_futures=True)
            raise
    return [look for start in sorted(found) for look in found[start]]


def _as_they_finish(pending: set[Future[list[ImageLook]]]) -> Iterator[Future[list[ImageLook]]]:
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        yield from done


def _look_at_chunk(records: Sequence[Record], start: int, end: int) -> list[ImageLook]:
    return [look_at_image(records[index], index) for index in range(start, end)]


def look_at_image(record: Record, index: int) -> ImageLook:
    path = record.image_path
    try:
        # Without O_NONBLOCK a named pipe would wait for its writer for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        return _faulty(index, path, *_why_not_opened(path, error))
    try:
        return _look_into(handle, record, index)
    except OSError as error:
        return _faulty(index, path, "unreadable", f"cannot be read: {error.strerror}")
    finally:
        os.close(handle)


def _look_into(handle: int, record: Record, index: int) -> ImageLook:
    path, status = record.image_path, os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or pipe"
        return _faulty(index, path, "not_an_image", f"is {what}, not a file")
    if not status.st_size:
        return _faulty(index, path, "empty", "is an empty file: put the image back or remove it")
    header = read_header(peek_of(handle), status.st_size)
    if header is None:
        content = os.pread(handle, status.st_size, 0)
        return _decoded(record, index, content)
    fault = _fault_of(header, record, status.st_size)
    return ImageLook(header.format, *header.upright, None if fault is None else image_fault(index, path, *fault))


def _fault_of(header: Header, record: Record, length: int) -> tuple[str, str] | None:
    if not header.whole:
        return "truncated", f"is truncated ({length} bytes, no end of the {header.format}): copy it again or remove it"
    excess = beyond_opencv(header.width, header.height)
    if excess:
        return "huge", excess
    return _size_fault(record, header.upright, (header.width, header.height))


def _size_fault(record: Record, upright: tuple[int, int], stored: tuple[int, int]) -> tuple[str, str] | None:
    annotated = (record.width, record.height)
    if not all(annotated) or annotated in (upright, stored):
        return None
    return (
        "size",
        f"has {upright[0]}x{upright[1]} pixels, but its annotations are for {annotated[0]}x{annotated[1]}: "
        "correct the annotation file, or give the image that was annotated",
    )


def _decoded(record: Record, index: int, content: bytes) -> ImageLook:
    """For formats and files whose header says too little."""
    path, kind = record.image_path, kind_of(content[:512])
    try:
        upright = _decoded_size(content, cv2.IMREAD_COLOR)
    except cv2.error as error:
        if "CV_IO_MAX" in str(error):
            return _faulty(index, path, "huge", "has more pixels than OpenCV reads: shrink it or cut it", kind)
        upright = None
    if upright is not None:
        stored = _decoded_size(content, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION) or upright
        fault = _size_fault(record, upright, stored) or _float_fault(kind, content)
        return ImageLook(kind, *upright, None if fault is None else image_fault(index, path, *fault))
    if not is_image_format(kind):
        return _faulty(index, path, "not_an_image", f"is not an image but {kind}: put the image back or remove it")
    if kind in _decodable_formats():
        reason = f"is a damaged {kind} ({len(content)} bytes) that cannot be decoded: copy it again or remove it"
        return _faulty(index, path, "damaged", reason, kind)
    reason = f"is {kind}, which this OpenCV does not read: convert it to JPEG or PNG"
    return _faulty(index, path, "unsupported", reason, kind)


def _decoded_size(content: bytes, flags: int) -> tuple[int, int] | None:
    image = cv2.imdecode(np.frombuffer(content, np.uint8), flags)
    return None if image is None else (image.shape[1], image.shape[0])


def _float_fault(kind: str, content: bytes) -> tuple[str, str] | None:
    """OpenCV turns a TIFF of floats into 8 bit without knowing its range: what comes out is no picture."""
    if "TIFF" not in kind:
        return None
    image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED)
    if image is None or image.dtype in (np.uint8, np.uint16):
        return None
    return "unsupported", f"is a TIFF of {image.dtype} numbers, whose range is unknown: convert it to 8 or 16 bit"


def beyond_opencv(width: int, height: int) -> str | None:
    """Why OpenCV would refuse a picture of this size, if it would (its limits can be set in the environment)."""
    limits = (
        (width, "OPENCV_IO_MAX_IMAGE_WIDTH", 1 << 20, "pixels wide"),
        (height, "OPENCV_IO_MAX_IMAGE_HEIGHT", 1 << 20, "pixels high"),
        (width * height, "OPENCV_IO_MAX_IMAGE_PIXELS", 1 << 30, "pixels large"),
    )
    for value, name, usual, unit in limits:
        limit = _number(os.environ.get(name), usual)
        if value > limit:
            return f"is {value} {unit}, OpenCV reads at most {limit}: shrink it, cut it into tiles, or set {name}"
    return None


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isdigit() else default


@cache
def _decodable_formats() -> frozenset[str]:
    """Formats that this build of OpenCV reads; a failure there means damage."""
    picture = np.zeros((64, 64, 3), np.uint8)  # JPEG 2000 needs some size
    suffixes = {"JPEG": ".jpg", "PNG": ".png", "WebP": ".webp", "BMP": ".bmp", "TIFF": ".tiff", "JPEG 2000": ".jp2"}
    return frozenset(name for name, suffix in suffixes.items() if cv2.imencode(suffix, picture)[0])


def _why_not_opened(path: str, error: Exception) -> tuple[str, str]:
    if not isinstance(error, OSError):  # a zero character in the name
        return "missing", f"is no file name: {error}"
    if os.path.islink(path) and error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
        return "broken_link", f"is a symbolic link to {os.readlink(path)}: No such file or directory. Mend the link"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "missing", "cannot be read: No such file or directory. Put it back, or remove its annotation"
    return "unreadable", f"cannot be opened: {error.strerror}"


def _faulty(index: int, path: str, kind: str, clause: str, content_format: str = "") -> ImageLook:
    return ImageLook(content_format, 0, 0, image_fault(index, path, kind, clause))


@contextmanager
def _silent_opencv() -> Iterator[None]:
    """OpenCV prints each failed decoding itself; here the faults are returned."""
    level = cv2.getLogLevel()
    cv2.setLogLevel(0)  # silent
    try:
        yield
    finally:
        cv2.setLogLevel(level)
