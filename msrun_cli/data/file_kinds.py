"""What a file really is, told by its content, in words for people."""

from __future__ import annotations

import codecs
import os

# (offset, bytes there, name)
_SIGNATURES = (
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"GIF87a", "GIF"),
    (0, b"GIF89a", "GIF"),
    (8, b"WEBP", "WebP"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (0, b"II+\0", "BigTIFF"),
    (0, b"MM\0+", "BigTIFF"),
    (0, b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"8BPS", "Photoshop"),
    (0, b"\0\0\1\0", "icon (ICO)"),
    (0, b"\x76\x2f\x31\x01", "OpenEXR"),
    (0, b"#?RADIANCE", "Radiance HDR"),
    (128, b"DICM", "DICOM"),
    (0, b"SIMPLE  =", "FITS"),
    (0, b"\x93NUMPY", "numpy array"),
    (0, b"\x89HDF", "HDF5"),
    (0, b"%PDF", "PDF"),
    (0, b"PK\3\4", "ZIP archive"),
    (0, b"\x1f\x8b", "gzip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (0, b"Rar!", "RAR archive"),
    (0, b"\x7fELF", "program (ELF)"),
    (0, b"version https://git-lfs", "Git LFS pointer (fetch the file with `git lfs pull`)"),
)
# Brands of ISO media files (bytes 8..12 behind "ftyp").
_BRANDS = {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIF", b"msf1": "HEIF"}
_SUFFIXES = {
    "JPEG": {".jpg", ".jpeg", ".jpe", ".jfif"},
    "PNG": {".png"},
    "WebP": {".webp"},
    "BMP": {".bmp", ".dib"},
    "TIFF": {".tif", ".tiff"},
}
_IMAGES = frozenset(
    {"JPEG", "PNG", "GIF", "WebP", "BMP", "TIFF", "BigTIFF", "JPEG 2000", "JPEG XL", "Photoshop", "icon (ICO)"}
    | {"OpenEXR", "Radiance HDR", "DICOM", "FITS", "AVIF", "HEIC", "HEIF", "SVG"}
)


def kind_of(start: bytes) -> str:
    """Name of the format that the first bytes (about 512) belong to; "data of an unknown kind" if none fits."""
    for offset, mark, name in _SIGNATURES:
        if start.startswith(mark, offset):
            return name
    if start[4:8] == b"ftyp":
        return _BRANDS.get(start[8:12], "video (MP4 or the like)")
    if start[:2] == b"BM" and len(start) > 14:
        return "BMP"
    if not start.strip(b"\0"):
        return "nothing but zero bytes (an interrupted copy?)"
    return _text_kind(start)


def is_image_format(kind: str) -> bool:
    """Whether a name that `kind_of` gave stands for pictures."""
    return kind in _IMAGES


def is_mislabelled(path: str, kind: str) -> bool:
    """The suffix promises another format, such as a PNG called .jpg; silent on formats without a usual suffix."""
    suffix = os.path.splitext(path)[1].lower()
    claims = next((name for name, suffixes in _SUFFIXES.items() if suffix in suffixes), None)
    return claims is not None and claims != kind and not (claims == "TIFF" and kind == "BigTIFF")


def _text_kind(start: bytes) -> str:
    head = start.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html", b"<head")):
        return "HTML page"
    if head.startswith((b"<svg", b"<?xml")):
        return "SVG" if b"<svg" in head else "XML"
    if head.startswith((b"{", b"[")):
        return "JSON"
    try:
        # The incremental decoder allows for a character that is cut at the end.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(start)
    except UnicodeDecodeError:
        return "data of an unknown kind"
    printable = all(character.isprintable() or character in "\r\n\t" for character in text)
    return "text" if text and printable else "data of an unknown kind"
