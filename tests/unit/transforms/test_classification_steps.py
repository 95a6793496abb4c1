"""What the steps of a classification chain draw: ranges, probabilities, and values that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from msrun_cli.common.errors import ConfigError
from msrun_cli.transforms.classification import (
    CenterCrop,
    ColorJitter,
    RandomCrop,
    RandomErasing,
    RandomFlip,
    RandomResizedCrop,
    Resize,
)
from msrun_cli.transforms.mixing import MixBatch
from msrun_cli.transforms.rand_augment import CHOICES, RandAugment


def plans(step, height=100, width=150, size=64, count=2000):
    rng = np.random.default_rng(0)
    return [step.plan(rng, height, width, size) for _ in range(count)]


def test_random_crop_has_the_area_and_the_ratio_that_were_asked_for():
    boxes = [plan[0].arguments for plan in plans(RandomResizedCrop((0.2, 0.8), (0.75, 4 / 3), fused=False))]
    area = np.array([box["height"] * box["width"] for box in boxes]) / 15_000
    ratio = np.array([box["width"] / box["height"] for box in boxes])
    assert 0.19 < area.min() < 0.22 and 0.65 < area.max() < 0.82
    assert 0.72 < ratio.min() < 0.78 and 1.3 < ratio.max() < 1.37
    small = [plan[0].arguments for plan in plans(RandomResizedCrop((0.1, 0.4), (0.75, 4 / 3), fused=False))]
    assert abs(np.mean([np.log(box["width"] / box["height"]) for box in small])) < 0.02  # none of them is refused
    assert all(0 <= box["top"] <= 100 - box["height"] and 0 <= box["left"] <= 150 - box["width"] for box in boxes)
    assert len({box["top"] for box in boxes}) > 30


@pytest.mark.parametrize(("height", "width"), [(2, 2000), (2000, 2), (1, 1)])
def test_random_crop_of_extreme_pictures_stays_inside(height, width):
    for (operation,) in plans(RandomResizedCrop(fused=False), height, width, count=50):
        box = operation.arguments
        assert 0 < box["height"] <= height and 0 < box["width"] <= width
        assert box["top"] + box["height"] <= height and box["left"] + box["width"] <= width


def test_fused_crop_draws_a_seed_for_each_picture():
    rng = np.random.default_rng(0)
    seeds = {RandomResizedCrop().plan_from_file(rng, 64)[0].arguments["seed"] for _ in range(100)}
    assert len(seeds) == 100
    assert RandomResizedCrop(fused=False).plan_from_file(rng, 64) is None


def test_random_crop_with_padding_covers_all_places():
    places = {(p[-1].arguments["top"], p[-1].arguments["left"]) for p in plans(RandomCrop(4), 32, 32, 32)}
    assert places == {(top, left) for top in range(9) for left in range(9)}


def test_flip_has_its_probability():
    assert np.mean([bool(plan) for plan in plans(RandomFlip(0.3))]) == pytest.approx(0.3, abs=0.03)
    assert not any(plans(RandomFlip(0.0))) and all(plans(RandomFlip(1.0)))


def test_jitter_stays_in_range_and_changes_the_order():
    drawn = plans(ColorJitter(0.4, 0.0, 0.2, 0.1))
    factors = {name: [] for name in ("brightness", "saturation", "hue")}
    for plan in drawn:
        for operation in plan:
            factors[operation.name].append(next(iter(operation.arguments.values())))
    assert 0.6 <= min(factors["brightness"]) < 0.62 and 1.38 < max(factors["brightness"]) <= 1.4
    assert 0.8 <= min(factors["saturation"]) and max(factors["saturation"]) <= 1.2
    assert -0.1 <= min(factors["hue"]) < -0.09
    assert len({tuple(operation.name for operation in plan) for plan in drawn}) == 6
    assert not any(plans(ColorJitter(), count=5))


@pytest.mark.parametrize(
    ("height", "width", "expected"), [(100, 150, (73, 110)), (150, 100, (110, 73)), (9, 9, (73, 73))]
)
def test_resize_brings_the_short_side_to_the_usual_ratio(height, width, expected):
    ((operation,),) = plans(Resize(), height, width, count=1)
    assert (operation.arguments["height"], operation.arguments["width"]) == expected
    assert plans(Resize(100), 100, 150, count=1) == [[]]


def test_resize_256_and_crop_224_are_the_published_evaluation():
    ((operation,),) = plans(Resize(), 500, 375, 224, count=1)
    assert (operation.arguments["height"], operation.arguments["width"]) == (341, 256)
    ((operation,),) = plans(CenterCrop(), 341, 256, 224, count=1)
    assert operation.arguments == {"top": 58, "left": 16, "height": 224, "width": 224}


def test_erasing_has_its_probability_and_area():
    drawn = plans(RandomErasing(0.4, (0.1, 0.3)))
    boxes = [plan[0].arguments for plan in drawn if plan]
    assert len(boxes) / len(drawn) == pytest.approx(0.4, abs=0.04)
    area = np.array([box["height"] * box["width"] for box in boxes]) / 15_000
    assert 0.09 < area.min() and area.max() < 0.31
    assert len({box["value"] for box in boxes}) > 100
    assert {plan[0].arguments["value"] for plan in plans(RandomErasing(1.0, value=7), count=9)} == {(7, 7, 7)}


def test_rand_augment_draws_all_operations_with_one_magnitude():
    drawn = plans(RandAugment(3, 30))
    names = {operation.name for plan in drawn for operation in plan}
    assert {"rotate", "affine", "posterize", "solarize", "equalize", "auto_contrast", "sharpness"} <= names
    assert np.mean([len(plan) for plan in drawn]) == pytest.approx(3 * (1 - 1 / len(CHOICES)), abs=0.05)
    degrees = {op.arguments["degrees"] for plan in drawn for op in plan if op.name == "rotate"}
    assert degrees == {30.0, -30.0}
    assert not any(plans(RandAugment(0, 9), count=5))


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: RandomResizedCrop(scale=(0.5, 0.2)), "random_resized_crop.scale"),
        (lambda: RandomResizedCrop(scale=(0.0, 0.2)), "random_resized_crop.scale"),
        (lambda: RandomResizedCrop(ratio=(0.5,)), "random_resized_crop.ratio"),
        (lambda: RandomCrop(-1), "random_crop.padding"),
        (lambda: RandomFlip(1.1), "flip.probability"),
        (lambda: ColorJitter(brightness=1.5), "color_jitter.brightness"),
        (lambda: ColorJitter(hue=0.6), "color_jitter.hue"),
        (lambda: Resize(0), "resize.size"),
        (lambda: RandomErasing(value=256), "random_erasing.value"),
        (lambda: RandomErasing(-1), "random_erasing.probability"),
        (lambda: RandAugment(-1), "rand_augment.operations"),
        (lambda: RandAugment(2, 31), "rand_augment.magnitude"),
        (lambda: MixBatch(mixup=-1), "mix.mixup"),
        (lambda: MixBatch(probability=2), "mix.probability"),
    ],
)
def test_wrong_values(make, key):
    with pytest.raises(ConfigError, match=key):
        make()
