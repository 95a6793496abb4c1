from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from msrun_cli.data.coco import read_coco
from msrun_cli.data.images import read_rgb
from msrun_cli.transforms.affine import RandomAffine
from msrun_cli.transforms.letterbox import shrunk
from msrun_cli.transforms.mosaic import Mosaic
from msrun_cli.transforms.sample import Context, Sample
from msrun_cli.transforms.tiles import Tile, Tiles


def plain(color: int, height: int = 30, width: int = 40) -> np.ndarray:
    return np.full((height, width, 3), color, np.uint8)


def four(side: int, centre: tuple[int, int]) -> Tiles:
    """Four plain tiles of levels 10, 20, 30, 40 that meet in `centre` and fill a canvas of `side`."""
    x, y = centre
    places = [(0, 0, x, y), (x, 0, side - x, y), (0, y, x, side - y), (x, y, side - x, side - y)]
    return Tiles(side, side, 200, tuple(Tile(plain(10 * n), *place) for n, place in enumerate(places, 1)))


def test_tiles_are_cut_at_the_canvas_and_the_rest_is_fill() -> None:
    tiles = Tiles(50, 40, 7, (Tile(plain(9), -10, 20, 40, 30), Tile(plain(5), 60, 0, 40, 30)))
    drawn = tiles.draw()
    wanted = np.full((40, 50, 3), 7, np.uint8)
    wanted[20:, :30] = 9
    np.testing.assert_array_equal(drawn, wanted)


def test_a_tile_that_is_the_canvas_is_not_copied() -> None:
    image = plain(3)
    assert Tiles(40, 30, 0, (Tile(image, 0, 0, 40, 30),)).draw() is image


def test_the_given_memory_is_used_unless_a_tile_lies_there() -> None:
    out = np.empty((50, 50, 3), np.uint8)
    assert four(50, (20, 30)).draw(out) is out
    assert four(50, (20, 30)).draw_view((1.0, 1.0), (0.0, 0.0), 50, 0, out) is out
    out[...] = 77
    drawn = Tiles(50, 50, 0, (Tile(out[:20, :20], 0, 0, 40, 40),)).draw_view((1.0, 1.0), (0.0, 0.0), 50, 0, out)
    assert drawn is not out and (out == 77).all() and (drawn[:40, :40] == 77).all()
    assert four(50, (20, 30)).draw(np.empty((9, 9, 3), np.uint8)).shape == (50, 50, 3)


def test_two_levels_of_fill_are_kept_apart() -> None:
    tiles = Tiles(40, 20, 7, (Tile(plain(9), 0, 0, 20, 10),))
    view = tiles.draw_view((0.5, 0.5), (4.0, 6.0), 32, 3)
    wanted = np.full((32, 32, 3), 3, np.uint8)
    wanted[6:16, 4:24] = 7
    wanted[6:11, 4:14] = 9
    np.testing.assert_array_equal(view, wanted)


def test_there_are_no_seams_at_any_scale() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        tiles = four(64, tuple(rng.integers(16, 49, 2).tolist()))
        scale = rng.uniform(0.3, 3.0)
        shift = rng.uniform(-0.4, 0.0, 2) * scale * 64
        view = tiles.draw_view((scale, scale), tuple(shift), 20, 200)
        inside = (shift + scale * 64 >= 20).all()  # the canvas covers the view
        levels = set(np.unique(view).tolist())
        assert levels <= ({10, 20, 30, 40} if inside else {10, 20, 30, 40, 200})


@pytest.mark.parametrize("scale", [0.35, 0.5, 0.77, 1.0, 1.3, 4.0, 15.0])
def test_pixels_are_at_most_half_a_pixel_off(scale: float) -> None:
    """The value of each pixel is its column, so the view shows where it was taken from."""
    ramp = np.broadcast_to(np.arange(0, 250, 10, dtype=np.uint8)[None, :, None], (25, 25, 3))
    tiles = Tiles(25, 25, 0, (Tile(np.ascontiguousarray(ramp), 0, 0, 25, 25),))
    rng = np.random.default_rng(1)
    for _ in range(20):
        shift = float(rng.uniform(-15, 0)) * scale + 3
        view = tiles.draw_view((scale, scale), (shift, 0.0), 40, 0)
        centres = (np.arange(40) + 0.5 - shift) / scale - 0.5  # columns of the canvas
        seen = (centres > 1) & (centres < 23)
        error_px = np.abs(view[1, seen, 0] / 10 - centres[seen]) * scale
        assert seen.sum() > 2 and error_px.max() <= 0.5 + 0.1 * scale  # a tenth of a column is a grey level


@pytest.mark.parametrize(("name", "size"), [("coco128", 320), ("bccd", 320)])
def test_composed_and_classic_pictures_are_alike(shared_data: Path, name: str, size: int) -> None:
    records = read_coco(str(shared_data / name)).train.records[:24]
    samples = []
    for record in records:
        image = read_rgb(record.image_path, record.width, record.height)
        samples.append(shrunk(Sample(image, record.boxes_xyxy, record.labels), size, cv2.INTER_LINEAR))
    differences, blurred = [], []
    for seed in range(24):
        drawn = []
        for compose in (True, False):
            context = Context(np.random.default_rng(seed), samples.__getitem__, len(samples), size)
            sample = Mosaic(probability=0.8)(samples[seed], context)
            drawn.append(RandomAffine(compose=compose)(sample, context))
        composed, classic = drawn
        np.testing.assert_array_equal(composed.boxes_xyxy, classic.boxes_xyxy)
        np.testing.assert_array_equal(composed.labels, classic.labels)
        differences.append(mean_difference(composed.image, classic.image))
        blurred.append(mean_difference(cv2.blur(composed.image, (5, 5)), cv2.blur(classic.image, (5, 5))))
    # Another interpolation and up to half a pixel of shift: a few levels at edges, next to nothing in the large.
    assert 0 < np.mean(differences) < 4 and np.mean(blurred) < 1.5


def mean_difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first.astype(int) - second).mean())


def test_rotation_is_drawn_in_the_classic_way() -> None:
    def read(index: int) -> Sample:
        image = np.random.default_rng(index).integers(0, 256, (48, 64, 3), np.uint8)
        return Sample(image, np.zeros((0, 4), np.float32), np.zeros(0, np.int64))

    for settings in ({"degrees": 5.0}, {"shear": 3.0}, {"perspective": 0.001}):
        drawn = []
        for compose in (True, False):
            context = Context(np.random.default_rng(4), read, 9, 64)
            drawn.append(RandomAffine(compose=compose, **settings)(Mosaic()(read(0), context), context).image)
        np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("settings", [{}, {"degrees": 30.0, "shear": 10.0}, {"scale": 0.9, "translate": 2.0}])
def test_only_what_is_seen_of_a_mosaic_is_drawn_and_looks_the_same(settings: dict[str, float]) -> None:
    def read(index: int) -> Sample:
        image = np.random.default_rng(index).integers(0, 256, (48, 64, 3), np.uint8)
        return Sample(image, np.array([[5, 6, 40, 30]], np.float32), np.zeros(1, np.int64))

    for seed in range(40):
        drawn = []
        for whole in (False, True):
            context = Context(np.random.default_rng(seed), read, 8, 64)
            sample = Mosaic()(read(0), context)
            if whole:
                assert sample.image is not None and sample.tiles is None  # draws it
            drawn.append(RandomAffine(**settings)(sample, context))
        np.testing.assert_array_equal(drawn[0].image, drawn[1].image)
        np.testing.assert_array_equal(drawn[0].boxes_xyxy, drawn[1].boxes_xyxy)
