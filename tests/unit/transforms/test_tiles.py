from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pytest

from msrun_cli.data.coco import read_coco
from msrun_cli.data.images import read_rgb
from msrun_cli.transforms.affine import RandomAffine, _Square
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
    out[...] = 77
    drawn = Tiles(50, 50, 0, (Tile(out[:20, :20], 0, 0, 40, 40),)).draw(out)
    assert drawn is not out and (out == 77).all() and (drawn[:40, :40] == 77).all()
    assert four(50, (20, 30)).draw(np.empty((9, 9, 3), np.uint8)).shape == (50, 50, 3)


@dataclass(frozen=True)
class Drawn:
    """A rounded warp, what a warp of the same scale and place gives, and the warp as it was drawn at random."""

    rounded: Sample
    same: np.ndarray
    classic: Sample


def drawn(sample: Sample, context: Context, *, seed: int, **settings: float) -> Drawn:
    """Three samples of one seed; `sample` must be as it is after the steps before the warp."""
    size = context.image_size

    class Remembering(RandomAffine):
        def _resized(self, sample: Sample, square: _Square, size: int, out: np.ndarray | None) -> np.ndarray:
            self.square = square
            return super()._resized(sample, square, size, out)

    steps = Remembering(**settings), RandomAffine(whole_pixels=False, **settings)
    found = []
    for step in steps:
        context.rng = np.random.default_rng(seed)
        found.append(
            step(Sample(sample.tiles or sample.image, sample.boxes_xyxy, sample.labels, margin=sample.margin), context)
        )
    same = steps[1]._view(sample, steps[0].square.to_view(size), size, None)
    return Drawn(found[0], same, found[1])


@pytest.mark.parametrize(("name", "size"), [("coco128", 320), ("bccd", 320)])
def test_rounded_and_classic_warps_are_alike(shared_data: Path, name: str, size: int) -> None:
    records = read_coco(str(shared_data / name)).train.records[:24]
    samples = []
    for record in records:
        image = read_rgb(record.image_path, record.width, record.height)
        samples.append(shrunk(Sample(image, record.boxes_xyxy, record.labels), size, cv2.INTER_LINEAR))
    to_same, blurred, moved = [], [], []
    for seed in range(24):
        context = Context(np.random.default_rng(seed), samples.__getitem__, len(samples), size)
        found = drawn(Mosaic(probability=0.8)(samples[seed], context), context, seed=seed)
        inner = slice(2, -2)  # a resize has no neighbours to look at beyond the edge
        to_same.append(np.abs(found.rounded.image.astype(int) - found.same)[inner, inner].mean())
        blurred.append(mean_difference(cv2.blur(found.rounded.image, (9, 9)), cv2.blur(found.classic.image, (9, 9))))
        if len(found.rounded.labels) == len(found.classic.labels):
            moved.append(np.abs(found.rounded.boxes_xyxy - found.classic.boxes_xyxy).max(initial=0))
    # The pixels are those of a warp to the very place that the boxes name ...
    assert max(to_same) < 1.5 and np.mean(to_same) < 0.7
    # ... and that place is what was drawn at random but for a pixel.
    assert np.mean(blurred) < 1.5 and len(moved) > 20 and max(moved) < 2


def mean_difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first.astype(int) - second).mean())


@pytest.mark.parametrize("size", [32, 320, 640])
def test_rounding_keeps_what_was_drawn_at_random(size: int) -> None:
    """Side and middle of the part that a view shows, in pixels of the picture."""
    affine, rng = RandomAffine(translate=0.3), np.random.default_rng(5)
    scales, shares = [], []
    for _ in range(500):
        matrix, scale = affine._draw(rng, 2 * size, 2 * size, size)
        square = _Square.nearest(matrix, size)
        middle = (size / 2 - matrix[:2, 2]) / scale
        assert abs(square.side - size / scale) <= 0.5
        assert abs(square.left + square.side / 2 - middle[0]) <= 0.5
        assert abs(square.top + square.side / 2 - middle[1]) <= 0.5
        corners = np.array([[square.left, square.left + square.side], [square.top] * 2, [1, 1]])
        np.testing.assert_allclose((square.to_view(size) @ corners)[0], [0, size], atol=1e-9)
        scales.append(size / square.side)
        shares.append(scale)
    assert abs(np.mean(scales) - np.mean(shares)) < 0.02 / size + 1e-3 and np.std(scales) > 0.2


def read_noise(index: int) -> Sample:
    image = np.random.default_rng(index).integers(0, 256, (48, 64, 3), np.uint8)
    return Sample(image, np.array([[5, 6, 40, 30]], np.float32), np.zeros(1, np.int64))


def test_rotation_is_not_rounded() -> None:
    for settings in ({"degrees": 5.0}, {"shear": 3.0}, {"perspective": 0.001}):
        found = []
        for whole_pixels in (True, False):
            context = Context(np.random.default_rng(4), read_noise, 9, 64)
            found.append(RandomAffine(whole_pixels=whole_pixels, **settings)(Mosaic()(read_noise(0), context), context))
        np.testing.assert_array_equal(found[0].image, found[1].image)
        np.testing.assert_array_equal(found[0].boxes_xyxy, found[1].boxes_xyxy)


def test_beyond_the_canvas_there_is_another_fill_and_no_tile() -> None:
    canvas = Tiles(40, 20, 7, (Tile(plain(9), 30, 5, 20, 10),))  # its right half lies beyond the canvas
    wanted = np.full((40, 40, 3), 3, np.uint8)
    wanted[4:24, :35] = 7
    wanted[9:19, 25:35] = 9
    np.testing.assert_array_equal(canvas.draw_square(5, -4, 40, 3), wanted)
    np.testing.assert_array_equal(canvas.draw_square(60, 0, 8, 3), np.full((8, 8, 3), 3))
    picture = plain(9)
    drawn = Tiles(40, 30, 7, (Tile(picture, 0, 0, 40, 30),)).draw_square(0, 0, 50, 3)
    assert (drawn[:30, :40] == 9).all() and (drawn[30:] == 3).all() and (drawn[:, 40:] == 3).all()


def test_a_view_from_very_far_needs_no_more_memory_than_a_warp() -> None:
    class Far(RandomAffine):
        def _draw(self, *_: object) -> tuple[np.ndarray, float]:
            return np.diag([1e-5, 1e-5, 1.0]), 1e-5

    context = Context(np.random.default_rng(3), read_noise, 9, 64)
    tracemalloc.start()
    found = Far()(Mosaic()(read_noise(0), context), context)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.image.shape == (64, 64, 3) and len(found.labels) == 0 and peak < 1 << 20


def test_the_given_memory_is_used_by_a_rounded_warp() -> None:
    for scale in (0.0, 0.5):
        out = np.empty((64, 64, 3), np.uint8)
        context = Context(np.random.default_rng(3), read_noise, 9, 64, out=out)
        assert RandomAffine(scale=scale)(Mosaic()(read_noise(0), context), context).image is out


@pytest.mark.parametrize("settings", [{}, {"degrees": 30.0, "shear": 10.0}, {"scale": 0.9, "translate": 2.0}])
def test_only_what_is_seen_of_a_mosaic_is_drawn_and_looks_the_same(settings: dict[str, float]) -> None:
    for seed in range(40):
        found = []
        for whole in (False, True):
            context = Context(np.random.default_rng(seed), read_noise, 8, 64)
            sample = Mosaic()(read_noise(0), context)
            if whole:
                assert sample.image is not None and sample.tiles is None  # draws it
            found.append(RandomAffine(whole_pixels=False, **settings)(sample, context))
        np.testing.assert_array_equal(found[0].image, found[1].image)
        np.testing.assert_array_equal(found[0].boxes_xyxy, found[1].boxes_xyxy)
