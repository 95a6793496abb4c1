"""Image files that OpenCV does not write, and files that only pretend, as bytes."""

from __future__ import annotations

import base64
import struct
import zlib

import cv2
import numpy as np

# 16x8 pixels, the left half (200, 30, 40), the right half (30, 180, 60).
CMYK_JPEG = base64.b64decode(
    "/9j/7gAOQWRvYmUAZAAAAAAA/9sAQwACAQEBAQECAQEBAgICAgIEAwICAgIFBAQDBAYFBgYGBQYGBgcJCAYHCQcGBggLCAkKCgoKCgYICwwLCgwJCgoK"
    "/8AAFAgACAAQBEMRAE0RAFkRAEsRAP/EABcAAQEBAQAAAAAAAAAAAAAAAAkKAAf/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/9oADgRDAE0AWQBLAAA/AEgD"
    "uJ8/iVdSw6gz/9k="
)
# The same two halves, then mirrored: two frames.
ANIMATED_GIF = base64.b64decode(
    "R0lGODdhEAAIAIEAAB60PMgeKAAAAAAAACwAAAAAEAAIAAAIJAADCBwoEIDBgwYJEkSIUOFAhgcdFoQIQGIAihUlYrS4USPFgAAh+QQBAAACACwAAAAA"
    "EAAIAIEetDzIHigAAAAAAAAIJAABCBwoMIDBgwYJEkSIUOFAhgcdFoQYQCIAihUlYrS4USPFgAA7"
)
HTML = b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n"
GIT_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


def encoded(suffix: str, picture: np.ndarray | None = None, width: int = 32, height: int = 24, seed: int = 0) -> bytes:
    """`picture` (BGR), or noise of that size, in the format of `suffix` (".jpg")."""
    if picture is None:
        picture = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    ok, data = cv2.imencode(suffix, picture)
    assert ok
    return data.tobytes()


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *extra: tuple[bytes, bytes]) -> bytes:
    """A PNG by hand. depth, colour: as in its header (colour 3 = palette); rows: each begins with a filter byte;
    extra: (type, data) of chunks before the picture's.
    """
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def palette_png() -> bytes:
    """2x1 pixels: (10, 20, 30), (200, 100, 50)."""
    return png(2, 1, 8, 3, b"\0\0\1", (b"PLTE", bytes([10, 20, 30, 200, 100, 50])))


def turned_png(orientation: int) -> bytes:
    """32x24 grey pixels with an EXIF orientation."""
    return png(32, 24, 8, 0, (b"\0" + bytes(32)) * 24, (b"eXIf", orientation_exif(orientation)))


def huge_png() -> bytes:
    """A header that promises 40000 x 40000 pixels."""
    return png(40000, 40000, 8, 0, b"")


def orientation_exif(orientation: int) -> bytes:
    return b"II" + struct.pack("<HIHHHIHHI", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def turned_jpeg(content: bytes, orientation: int) -> bytes:
    """The JPEG with an EXIF block and, in it, an end marker as previews have."""
    block = b"Exif\0\0" + orientation_exif(orientation) + b"\xff\xd9"
    return content[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + content[2:]


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
