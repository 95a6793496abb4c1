from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from msrun_cli.data.pictures import Fit, Pictures, kept_shapes, reduction
from msrun_cli.data.records import Record


def smooth(height: int, width: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return cv2.resize(rng.integers(0, 256, (9, 12, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)


def record_of(path: Path, height: int, width: int) -> Record:
    boxes = np.array([[10, 20, 110, 90], [0, 0, width, height]], np.float32)
    return Record(str(path), 1, boxes, np.array([4, 5]), np.array([False, True]), width, height)


def written(folder: Path, name: str, height: int, width: int) -> Record:
    path = folder / name
    cv2.imwrite(str(path), smooth(height, width), [cv2.IMWRITE_JPEG_QUALITY, 95])
    return record_of(path, height, width)


@pytest.mark.parametrize(("height", "width"), [(480, 640), (641, 333), (1000, 128), (128, 100), (50, 20)])
@pytest.mark.parametrize("suffix", [".jpg", ".png"])
def test_reduced_decoding_gives_nearly_the_same_picture(tmp_path: Path, height: int, width: int, suffix: str) -> None:
    record = written(tmp_path, f"a{suffix}", height, width)
    whole, reduced = (Pictures([record], Fit(128, cv2.INTER_AREA, flag))[0] for flag in (False, True))
    assert reduced.size == whole.size == tuple(kept_shapes([record], Fit(128, cv2.INTER_AREA))[0])
    assert max(reduced.size) == min(128, max(height, width))
    np.testing.assert_array_equal(reduced.boxes_xyxy, whole.boxes_xyxy)
    scale = min(1.0, 128 / max(height, width))
    np.testing.assert_allclose(reduced.boxes_xyxy, record.boxes_xyxy[:1] * scale, rtol=1e-6)
    assert reduced.geometry == whole.geometry and whole.geometry is not None
    assert (whole.geometry.scale, whole.geometry.width) == (scale, width)
    # The classic way stretches sides that do not divide to whole pixels, by up to one pixel; the decoder does not.
    divides = (height * 128) % max(height, width) == (width * 128) % max(height, width) == 0
    assert np.abs(reduced.image.astype(int) - whole.image).mean() < (1 if divides else 5)
    if suffix == ".png" or max(height, width) < 256:
        np.testing.assert_array_equal(reduced.image, whole.image)


def test_photographs_are_nearly_the_same_too(shared_data: Path) -> None:
    differences = []
    for path in sorted((shared_data / "coco128" / "images" / "train2017").glob("*.jpg"))[:16]:
        height, width = cv2.imread(str(path)).shape[:2]
        record = record_of(path, height, width)
        whole, reduced = (Pictures([record], Fit(160, cv2.INTER_AREA, flag))[0].image for flag in (False, True))
        differences.append(np.abs(cv2.blur(reduced, (5, 5)).astype(int) - cv2.blur(whole, (5, 5))).mean())
    assert 0 < np.mean(differences) < 2.5


def test_a_mark_lies_in_its_box_after_reduced_decoding(tmp_path: Path) -> None:
    image = np.zeros((700, 900, 3), np.uint8)
    image[100:400, 200:500] = 255
    cv2.imwrite(str(tmp_path / "a.jpg"), image)
    boxes = np.array([[200, 100, 500, 400]], np.float32)
    record = Record(str(tmp_path / "a.jpg"), 1, boxes, np.array([0]), np.array([False]), 900, 700)
    sample = Pictures([record], Fit(100, cv2.INTER_LINEAR, True))[0]
    rows, columns = np.nonzero(sample.image[..., 0] > 128)
    found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(sample.boxes_xyxy[0], found, atol=1)


def test_the_decoder_never_goes_below_the_wanted_size() -> None:
    assert [reduction(long, 100) for long in (50, 100, 199, 200, 399, 400, 800, 9000)] == [1, 1, 1, 2, 2, 4, 8, 8]


def test_pictures_are_whole_without_a_fit(tmp_path: Path) -> None:
    record = written(tmp_path, "a.png", 300, 200)
    assert Pictures([record])[0].size == (300, 200)
    np.testing.assert_array_equal(kept_shapes([record], None), [[300, 200]])
    assert kept_shapes([], Fit(100, 0)).shape == (0, 2)
