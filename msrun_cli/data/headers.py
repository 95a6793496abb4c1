"""What an image file says about itself in its first bytes: format, size, orientation, whether it is whole.

Only JPEG, PNG, WebP and BMP are known, and only in their common forms. Whatever is doubtful has no header here, so that
the caller asks a decoder instead.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Peek = Callable[[int, int], bytes]
"""(offset, length) -> bytes of the file there; fewer at its end."""

# Start-of-frame markers of JPEG that every libjpeg decodes: baseline, extended, progressive, each Huffman-coded.
_JPEG_FRAMES = frozenset({0xC0, 0xC1, 0xC2})
_JPEG_OTHER_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
JPEG_SCAN = 0xDA
_JPEG_MARKER_LENGTH_BYTES = 2
_HEAD_BYTES = 4096  # holds the header of most files, so that one read is enough
_TAIL_BYTES = 4096
_EXIF_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True)
class Header:
    """width, height: pixels as stored; turned: shown upright they change places (EXIF orientation 5..8).

    whole: the end of the image is there, so nothing was cut off.
    """

    format: str
    width: int
    height: int
    turned: bool
    whole: bool

    @property
    def upright(self) -> tuple[int, int]:
        return (self.height, self.width) if self.turned else (self.width, self.height)


def peek_of(handle: int) -> Peek:
    """Into an open file; its first bytes are read once."""
    head = os.pread(handle, _HEAD_BYTES, 0)

    def peek(offset: int, length: int) -> bytes:
        if offset + length <= len(head):
            return head[offset : offset + length]
        return os.pread(handle, length, offset)

    return peek


def read_header(peek: Peek, length: int) -> Header | None:
    """The header of a file of `length` bytes; None when it is another format, damaged or unusual.

    WebP: OpenCV ignores its EXIF orientation, so this does too.
    """
    start = peek(0, 32)
    try:
        if start.startswith(b"\xff\xd8\xff"):
            return _jpeg(peek, length)
        if start.startswith(b"\x89PNG\r\n\x1a\n"):
            return _png(peek, length)
        if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
            return _webp(start, length)
        if start[:2] == b"BM":
            return _bmp(peek(0, 64), length)
    except (struct.error, IndexError):  # ends in the middle of its header
        pass
    return None


def _jpeg(peek: Peek, length: int) -> Header | None:
    turned = False
    size: tuple[int, int] | None = None
    for marker, offset in jpeg_segments(peek):
        if marker == 0xE1 and peek(offset + 4, 6) == b"Exif\0\0":
            (segment,) = struct.unpack(">H", peek(offset + 2, 2))
            turned = exif_orientation(peek(offset + 10, segment - 8)) >= 5
        elif marker in _JPEG_FRAMES:
            precision, height, width = struct.unpack(">BHH", peek(offset + 4, 5))
            if precision != 8:
                return None
            size = width, height
        elif marker in _JPEG_OTHER_FRAMES:
            return None
        elif marker == JPEG_SCAN and size is not None and all(size):
            return Header("JPEG", *size, turned, _last(peek, length, b"\xff\xd9") > offset)
    return None


def jpeg_segments(peek: Peek) -> Iterator[tuple[int, int]]:
    """(marker, offset of its FF byte) up to the first scan. Raises struct.error where the file ends before."""
    offset = 2
    while True:
        start = peek(offset, 4)
        if start[:1] != b"\xff":
            return
        marker = start[1]
        if marker == 0xFF:  # fill byte
            offset += 1
            continue
        yield marker, offset
        if marker == JPEG_SCAN:
            return
        (segment,) = struct.unpack(">H", start[2:4])
        offset += _JPEG_MARKER_LENGTH_BYTES + segment


def _png(peek: Peek, length: int) -> Header | None:
    chunk = peek(8, 25)
    width, height = struct.unpack(">II", chunk[8:16])
    (checksum,) = struct.unpack(">I", chunk[21:25])
    if chunk[4:8] != b"IHDR" or zlib.crc32(chunk[4:21]) != checksum or not width or not height:
        return None
    turned, offset = False, 33
    while True:
        size, kind = struct.unpack(">I4s", peek(offset, 8))
        if kind == b"eXIf":
            turned = exif_orientation(peek(offset + 8, size)) >= 5
        if kind == b"IDAT":
            return Header("PNG", width, height, turned, _last(peek, length, b"IEND") > offset)
        if kind == b"IEND":
            return None
        offset += size + 12


def _webp(start: bytes, length: int) -> Header | None:
    """https://developers.google.com/speed/webp/docs/riff_container"""
    (riff,) = struct.unpack("<I", start[4:8])
    kind, data = start[12:16], start[20:]
    if kind == b"VP8 " and data[3:6] == b"\x9d\x01\x2a":
        width, height = (side & 0x3FFF for side in struct.unpack("<HH", data[6:10]))
    elif kind == b"VP8L" and data[0] == 0x2F:
        (bits,) = struct.unpack("<I", data[1:5])
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (4, 7))
    else:
        return None
    return Header("WebP", width, height, False, riff + 8 <= length)


def _bmp(start: bytes, length: int) -> Header | None:
    offset, header, width, height, _, bits, compression = struct.unpack("<IIiiHHI", start[10:34])
    if header < 40 or compression not in (0, 3) or width <= 0 or not height:
        return None
    row = (width * bits + 31) // 32 * 4
    return Header("BMP", width, abs(height), False, offset + row * abs(height) <= length)


def _last(peek: Peek, length: int, mark: bytes) -> int:
    """Offset of the last `mark`, -1 without one. Bytes behind the image are common, so look through the whole file."""
    start = max(0, length - _TAIL_BYTES)
    found = peek(start, length - start).rfind(mark)
    if found >= 0:
        return start + found
    return peek(0, length).rfind(mark) if start else -1


def exif_orientation(tiff: bytes) -> int:
    """1..8 (5..8: width and height change places); 1 when there is none. tiff: EXIF data from its byte order on."""
    order = "<" if tiff.startswith(b"II") else ">"
    try:
        (start,) = struct.unpack_from(order + "I", tiff, 4)
        (count,) = struct.unpack_from(order + "H", tiff, start)
        for index in range(count):
            tag, _, _, value = struct.unpack_from(order + "HHIH", tiff, start + 2 + 12 * index)
            if tag == _EXIF_ORIENTATION:
                return value
    except struct.error:
        pass
    return 1
