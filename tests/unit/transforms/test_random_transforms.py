from __future__ import annotations

import cv2
import numpy as np
import pytest
from marked_pictures import SIZE, check_marks, context_of, marked

from msrun_cli.transforms.affine import RandomAffine, is_recognisable, warp_boxes
from msrun_cli.transforms.chain import Chain
from msrun_cli.transforms.color import RandomHSV
from msrun_cli.transforms.copy_paste import CopyPaste
from msrun_cli.transforms.flip import RandomHorizontalFlip, RandomVerticalFlip
from msrun_cli.transforms.letterbox import Letterbox
from msrun_cli.transforms.mixup import MixUp
from msrun_cli.transforms.mosaic import Mosaic
from msrun_cli.transforms.sample import Context, Sample

CHAINS = {
    "nothing": {},
    "letterbox": {"letterbox": Letterbox()},
    "mosaic": {"mosaic": Mosaic()},
    "mosaic sometimes": {"mosaic": Mosaic(probability=0.5), "affine": RandomAffine()},
    "affine": {"affine": RandomAffine(degrees=10, shear=5)},
    "perspective": {"mosaic": Mosaic(), "affine": RandomAffine(perspective=0.001)},
    "off": {"mosaic": None, "affine": None, "hsv": RandomHSV(), "flip": RandomHorizontalFlip()},
    "all": {
        "mosaic": Mosaic(),
        "affine": RandomAffine(degrees=5, shear=2),
        "copy_paste": CopyPaste(probability=0.5),
        "mixup": MixUp(probability=0.5),
        "hsv": RandomHSV(),
        "flip": RandomHorizontalFlip(),
        "flip_vertical": RandomVerticalFlip(),
    },
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("height, width", [(90, 120), (300, 100), (64, 64), (128, 128), (70, 56)])
def test_each_chain_keeps_the_contract(name: str, height: int, width: int) -> None:
    chain = Chain(CHAINS[name])
    for seed in range(8):
        found = chain(marked(seed, height, width), context_of(seed))
        assert found.image.shape == (SIZE, SIZE, 3)
        assert found.image.dtype == np.uint8 and found.image.flags.c_contiguous
        assert found.boxes_xyxy.dtype == np.float32 and found.boxes_xyxy.shape == (len(found.labels), 4)
        assert found.margin == 0
        assert (found.boxes_xyxy >= 0).all() and (found.boxes_xyxy <= SIZE).all()
        assert (found.boxes_xyxy[:, 2:] > found.boxes_xyxy[:, :2]).all()


@pytest.mark.parametrize("name", CHAINS)
def test_the_same_generator_gives_the_same_sample(name: str) -> None:
    first, again, other = (Chain(CHAINS[name])(marked(3), context_of(seed)) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first.image, again.image)
    np.testing.assert_array_equal(first.boxes_xyxy, again.boxes_xyxy)
    if name not in ("nothing", "letterbox"):
        assert not np.array_equal(first.image, other.image)


def test_a_chain_counts_the_pictures_it_merges() -> None:
    assert Chain(CHAINS["all"]).merges == 16
    assert Chain(CHAINS["off"]).merges == 1
    assert Chain({"mosaic": Mosaic(probability=0), "mixup": MixUp(probability=0)}).merges == 1
    assert list(Chain(CHAINS["off"]).steps) == ["hsv", "flip"]


def test_mosaic_boxes_follow_the_pixels() -> None:
    checked = 0
    for seed in range(20):
        found = Mosaic()(marked(seed), context_of(seed, 128))
        assert found.image.shape == (256, 256, 3) and found.margin == 64
        checked += check_marks(found, tolerance_px=2)
    assert checked > 30


def test_affine_boxes_follow_the_pixels() -> None:
    checked = 0
    for seed in range(40):
        chain = Chain(
            {"mosaic": Mosaic(probability=0.5), "affine": RandomAffine(translate=0.2), "flip": RandomHorizontalFlip()}
        )
        found = chain(marked(seed), context_of(seed, 160))
        checked += check_marks(found, tolerance_px=2.5)
    assert checked > 40


@pytest.mark.parametrize(
    "settings", [{"degrees": 30.0}, {"shear": 20.0}, {"perspective": 0.001}, {"degrees": 10.0, "shear": 5.0}], ids=str
)
def test_boxes_follow_rotation_shear_and_perspective(settings: dict[str, float]) -> None:
    chain = Chain({"affine": RandomAffine(scale=0.2, **settings)})
    checked = 0
    for seed in range(30):
        found = chain(marked(seed), context_of(seed, 200))
        inside = (found.boxes_xyxy > 0).all(axis=1) & (found.boxes_xyxy < 200).all(axis=1)
        # The border cuts a turned object itself, but the box around its corners only afterwards.
        checked += check_marks(Sample(found.image, found.boxes_xyxy[inside], found.labels[inside]), 3)
    assert checked > 15


def test_a_turned_box_is_the_upright_box_around_its_corners() -> None:
    square = np.array([[-1, -1, 1, 1]], np.float32)
    turn = np.array([[1, -1, 0], [1, 1, 0], [0, 0, np.sqrt(2)]])  # 45 degrees
    root = np.sqrt(2)
    np.testing.assert_allclose(warp_boxes(square, turn), [[-root, -root, root, root]], rtol=1e-6)


def test_an_affine_of_nothing_changes_nothing() -> None:
    sample = Letterbox()(marked(1), context_of(0))
    found = RandomAffine(translate=0, scale=0)(sample, context_of(0))
    np.testing.assert_array_equal(found.image, sample.image)
    np.testing.assert_allclose(found.boxes_xyxy, sample.boxes_xyxy, atol=1e-5)
    assert found.geometry is None


def test_an_affine_of_nothing_cuts_the_middle_of_a_mosaic() -> None:
    sample = Mosaic()(marked(1), context_of(0))
    found = RandomAffine(translate=0, scale=0)(sample, context_of(0))
    np.testing.assert_array_equal(found.image, sample.image[SIZE // 2 : -SIZE // 2, SIZE // 2 : -SIZE // 2])


def test_boxes_that_cannot_be_recognised_are_dropped() -> None:
    before = np.array([[0, 0, 20, 20], [0, 0, 20, 20], [0, 0, 20, 20], [0, 0, 400, 3]], np.float32)
    after = np.array([[0, 0, 20, 20], [0, 0, 1.9, 20], [0, 0, 6, 6], [0, 0, 400, 3]], np.float32)
    assert is_recognisable(before, after).tolist() == [True, False, False, False]
    assert is_recognisable(before[:0], after[:0]).shape == (0,)


def test_hsv_keeps_shape_and_boxes_and_grey_stays_grey() -> None:
    sample = marked(3)
    found = RandomHSV(hue=0.5, saturation=0.5, value=0.0)(marked(3), context_of(2))
    np.testing.assert_array_equal(found.image[0, 0], sample.image[0, 0])
    assert not np.array_equal(found.image, sample.image)
    np.testing.assert_array_equal(found.boxes_xyxy, sample.boxes_xyxy)


def test_hsv_factors_stay_in_their_range() -> None:
    image = cv2.cvtColor(np.full((1, 1, 3), (60, 100, 100), np.uint8), cv2.COLOR_HSV2RGB)
    for seed in range(50):
        sample = Sample(image.copy(), np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
        found = RandomHSV(hue=0.1, saturation=0.5, value=0.5)(sample, context_of(seed)).image
        hue, saturation, value = cv2.cvtColor(found, cv2.COLOR_RGB2HSV)[0, 0]
        assert 52 <= hue <= 68 and 46 <= saturation <= 154 and 49 <= value <= 151


def test_flips_mirror_boxes() -> None:
    sample = marked(2)
    for flip in (RandomHorizontalFlip(probability=1.0), RandomVerticalFlip(probability=1.0)):
        once = flip(marked(2), context_of(0))
        assert check_marks(once, tolerance_px=0) == 1
        assert once.geometry is None
        np.testing.assert_array_equal(flip(once, context_of(0)).boxes_xyxy, sample.boxes_xyxy)
    never = RandomHorizontalFlip(probability=0.0)(marked(2), context_of(0))
    np.testing.assert_array_equal(never.image, sample.image)


def test_pictures_without_boxes_pass_through() -> None:
    empty = Sample(np.zeros((50, 80, 3), np.uint8), np.zeros((0, 4), np.float32), np.zeros(0, np.int64))
    context = Context(np.random.default_rng(0), lambda index: empty, 1, SIZE)
    assert Chain(CHAINS["all"])(empty, context).boxes_xyxy.shape == (0, 4)
