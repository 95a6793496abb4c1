from __future__ import annotations

import struct
from pathlib import Path

import cv2
import numpy as np
import pytest
from coco_folders import write_image

from msrun_cli.common.errors import DataError
from msrun_cli.data.images import image_size, read_rgb


def with_orientation(path: Path, orientation: int, order: str = "<") -> Path:
    """Put an EXIF block with the orientation, and a preview with its own end marker, into a JPEG."""
    content = path.read_bytes()
    mark = b"II" if order == "<" else b"MM"
    tiff = mark + struct.pack(order + "HIHHHIHHI", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0) + b"\xff\xd9"
    block = b"Exif\0\0" + tiff
    path.write_bytes(content[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + content[2:])
    return path


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "webp"])
def test_sizes(tmp_path: Path, suffix: str) -> None:
    path = str(write_image(tmp_path / f"a.{suffix}", 33, 21))
    assert image_size(path) == (33, 21)
    assert read_rgb(path, 33, 21).shape == (21, 33, 3)


def test_colours_are_rgb(tmp_path: Path) -> None:
    path = str(tmp_path / "a.png")
    cv2.imwrite(path, np.full((4, 4, 3), (10, 20, 30), np.uint8))  # BGR
    assert read_rgb(path, 4, 4)[0, 0].tolist() == [30, 20, 10]


@pytest.mark.parametrize("depth", ["grey", "alpha", "16 bit"])
def test_every_depth_becomes_rgb(tmp_path: Path, depth: str) -> None:
    path = str(tmp_path / "a.png")
    shape = {"grey": (4, 6), "alpha": (4, 6, 4), "16 bit": (4, 6, 3)}[depth]
    cv2.imwrite(path, np.full(shape, 200, np.uint16 if depth == "16 bit" else np.uint8))
    found = read_rgb(path, 6, 4)
    assert found.shape == (4, 6, 3) and found.dtype == np.uint8


@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_orientation(tmp_path: Path, order: str) -> None:
    turned = str(with_orientation(write_image(tmp_path / "a.jpg", 40, 24), 6, order))
    assert image_size(turned) == (24, 40)
    assert read_rgb(turned, 24, 40).shape == (40, 24, 3)
    # Annotations that were made for the pixels as stored.
    assert read_rgb(turned, 40, 24).shape == (24, 40, 3)
    assert image_size(str(with_orientation(write_image(tmp_path / "b.jpg", 40, 24), 3, order))) == (40, 24)


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_truncated_files_are_named(tmp_path: Path, suffix: str) -> None:
    path = write_image(tmp_path / f"a.{suffix}", 200, 100)
    content = path.read_bytes()
    path.write_bytes(content + b"\0\0trailing")  # some cameras do that
    assert read_rgb(str(path), 200, 100).shape == (100, 200, 3)
    path.write_bytes(content[: len(content) * 3 // 4])
    with pytest.raises(DataError, match=f"a.{suffix} is truncated"):
        read_rgb(str(path), 200, 100)
    path.write_bytes(content[:10])
    with pytest.raises(DataError, match=f"a.{suffix}"):
        image_size(str(path))


def test_a_preview_does_not_hide_the_truncation(tmp_path: Path) -> None:
    path = with_orientation(write_image(tmp_path / "a.jpg", 200, 100), 1)
    content = path.read_bytes()
    assert read_rgb(str(path), 200, 100).shape == (100, 200, 3)
    path.write_bytes(content[: len(content) * 3 // 4])
    with pytest.raises(DataError, match="truncated"):
        read_rgb(str(path), 200, 100)


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    for name, content, said in (("a.jpg", b"hello", "not an image"), ("b.jpg", b"", "empty file")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name} .*{said}"):
            read_rgb(str(tmp_path / name), 4, 4)
        with pytest.raises(DataError, match=name):
            image_size(str(tmp_path / name))
    with pytest.raises(DataError, match="c.jpg cannot be read"):
        image_size(str(tmp_path / "c.jpg"))
    with pytest.raises(DataError, match="c.jpg cannot be read"):
        read_rgb(str(tmp_path / "c.jpg"), 4, 4)


def test_another_size_than_annotated_is_named(tmp_path: Path) -> None:
    path = str(write_image(tmp_path / "a.png", 40, 24))
    with pytest.raises(DataError, match="a.png has 40x24 pixels, but its annotations are for 30x24"):
        read_rgb(path, 30, 24)
