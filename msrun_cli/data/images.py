"""Read image files and their sizes; whatever is wrong with a file is said with its name."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import cv2
import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.headers import JPEG_SCAN, jpeg_segments, peek_of, read_header

SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})

_JPEG = b"\xff\xd8"

# OpenCV 4.11 and later write the channels in our order while decoding.
_REDUCED = {2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4, 8: cv2.IMREAD_REDUCED_COLOR_8}
_READ_RGB: int | None = getattr(cv2, "IMREAD_COLOR_RGB", None)


def read_rgb(path: str, width: int, height: int, reduction: int = 1) -> np.ndarray:
    """uint8 (height, width, 3) RGB, the right way up.

    reduction: 2, 4 or 8 = a JPEG is decoded with sides divided by this and rounded up, which takes less time and
        memory; other formats are decoded whole

    Raises DataError when the file is missing, truncated, no image, or has another size than `width` x `height` (the
    boxes would then lie elsewhere). A picture whose annotations ignore its EXIF orientation is read without it.
    """
    content = _read(path)
    _check_complete(path, content)
    reduction = reduction if content.startswith(_JPEG) else 1
    wanted = (-(-height // reduction), -(-width // reduction))
    image = _decode_rgb(path, content, reduction)
    if image.shape[:2] != wanted:
        found = f"{image.shape[1] * reduction}x{image.shape[0] * reduction}"
        image = _decode_rgb(path, content, reduction, cv2.IMREAD_IGNORE_ORIENTATION)
        if image.shape[:2] != wanted:
            raise DataError(
                f"{path} has {found} pixels, but its annotations are for {width}x{height}. "
                "Correct width and height in the annotation file, or give the image that was annotated."
            )
    return image


def image_size(path: str) -> tuple[int, int]:
    """(width, height) of the picture the right way up, from the file's header where it has a known one."""
    try:
        with open(path, "rb") as file:
            header = read_header(peek_of(file.fileno()), os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    if header is not None:
        return header.upright
    height, width = _decode(path, _read(path), cv2.IMREAD_COLOR).shape[:2]
    return width, height


def _read(path: str) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
    if not content:
        raise DataError(f"{path} is an empty file. Remove it or put the image back.")
    return content


def _decode_rgb(path: str, content: bytes, reduction: int, flags: int = 0) -> np.ndarray:
    if reduction > 1:
        image = _decode(path, content, _REDUCED[reduction] | flags)
    elif _READ_RGB is not None:
        return _decode(path, content, _READ_RGB | flags)
    else:
        image = _decode(path, content, cv2.IMREAD_COLOR | flags)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)


def _decode(path: str, content: bytes, flags: int) -> np.ndarray:
    try:
        image = cv2.imdecode(np.frombuffer(content, np.uint8), flags)
    except cv2.error as error:  # for instance a picture beyond OpenCV's size limit
        raise DataError(f"{path} cannot be decoded: {error.err}.") from error
    if image is None:
        raise DataError(f"{path} is not an image that OpenCV can read (damaged, or an unknown format).")
    return image


def _check_complete(path: str, content: bytes) -> None:
    """OpenCV fills the missing part of a truncated file with grey and says nothing, so look for the end marker."""
    if content.startswith(_JPEG):
        # The end marker must come after the first scan: an embedded preview has one of its own before.
        complete = content.rfind(b"\xff\xd9") > _first_scan(content) > 0
    elif content.startswith(b"\x89PNG"):
        complete = content.rfind(b"IEND") > 0
    else:
        complete = True
    if not complete:
        raise DataError(f"{path} is truncated ({len(content)} bytes, no end of image). Copy it again or remove it.")


def _first_scan(content: bytes) -> int:
    """Its offset in a JPEG; 0 without one."""
    segments = jpeg_segments(lambda offset, length: content[offset : offset + length])
    try:
        return next((offset for marker, offset in segments if marker == JPEG_SCAN), 0)
    except struct.error:  # ends in the middle of a segment
        return 0
