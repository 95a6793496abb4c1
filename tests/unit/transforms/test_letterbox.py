from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from msrun_cli.transforms.letterbox import Letterbox, letterbox
from msrun_cli.transforms.sample import Context, Geometry, Sample


def sample_of(image: np.ndarray, boxes_xyxy: list[list[float]] | None = None) -> Sample:
    boxes = np.array(boxes_xyxy or [], np.float32).reshape(-1, 4)
    geometry = Geometry.identity(image.shape[1], image.shape[0])
    return Sample(image, boxes, np.zeros(len(boxes), np.int64), geometry)


def context_of(size: int) -> Context:
    return Context(np.random.default_rng(0), lambda index: pytest.fail("must not read"), 1, size)


def test_pictures_equal_the_reference(shared_data: Path) -> None:
    with np.load(shared_data / "reference" / "yolov5n_320_parity.npz") as reference:
        names, wanted = reference["image_files"], reference["images_rgb_u8"]
    compared = 0
    for name, picture in zip(names, wanted, strict=True):
        image = cv2.imread(str(shared_data / "coco128" / "images" / "train2017" / Path(str(name)).name))
        short = min(image.shape[:2]) * 320 / max(image.shape[:2])
        if round(short) < short:  # these pictures were made with rounded sides, those of published metrics rounded up
            continue
        found = Letterbox(shrink="linear")(sample_of(image[:, :, ::-1]), context_of(320))
        np.testing.assert_array_equal(found.image, picture)
        compared += 1
    assert compared >= 4


@pytest.mark.parametrize("height, width", [(480, 640), (481, 333), (1, 300), (300, 1), (64, 64), (20, 30), (5, 5)])
@pytest.mark.parametrize("enlarge", [True, False])
def test_shape_geometry_and_boxes(height: int, width: int, enlarge: bool) -> None:
    image = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    found = Letterbox(enlarge=enlarge)(sample_of(image, [[0, 0, width, height]]), context_of(64))
    assert found.image.shape == (64, 64, 3) and found.image.dtype == np.uint8
    at = found.geometry
    assert at is not None and (at.width, at.height) == (width, height)
    assert at.scale == (64 / max(height, width) if enlarge or max(height, width) > 64 else 1.0)
    box = np.array([0, 0, width * at.scale, height * at.scale]) + np.tile([at.pad_x, at.pad_y], 2)
    # equal but for the half pixel by which an odd bar is shared out
    np.testing.assert_allclose(found.boxes_xyxy[0], box, atol=0.5 + 1e-4)
    assert -1 <= box.min() and box.max() <= 65


def test_a_mark_is_found_at_its_box() -> None:
    image = np.zeros((100, 200, 3), np.uint8)
    image[40:60, 100:150] = 255
    found = letterbox(sample_of(image, [[100, 40, 150, 60]]), 400)
    rows, columns = np.nonzero((found.image > 128).all(axis=2))
    mark = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(found.boxes_xyxy[0], mark, atol=1)
    assert (found.image[0] == 114).all() and (found.image[-1] == 114).all()


def test_two_letterboxes_keep_one_geometry() -> None:
    found = letterbox(letterbox(sample_of(np.zeros((50, 100, 3), np.uint8)), 64), 128)
    at = found.geometry
    assert at is not None and at.scale == pytest.approx(1.28)
    assert (at.pad_x, at.pad_y) == (0, 32)


def test_an_unknown_interpolation_is_refused() -> None:
    with pytest.raises(ValueError, match="bicubic.*area"):
        Letterbox(shrink="bicubic")
