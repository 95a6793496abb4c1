from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
from marked_pictures import COLORS, check_marks, context_of, found_box, marked

from msrun_cli.common.errors import ConfigError
from msrun_cli.transforms.affine import RandomAffine
from msrun_cli.transforms.albumentations import Albumentations
from msrun_cli.transforms.chain import Chain, Stage
from msrun_cli.transforms.copy_paste import CopyPaste, hidden_parts
from msrun_cli.transforms.letterbox import Letterbox, letterbox
from msrun_cli.transforms.mixup import MixUp
from msrun_cli.transforms.mosaic import Mosaic
from msrun_cli.transforms.sample import Context, Sample


def test_mixup_is_the_weighted_sum_with_the_boxes_of_both() -> None:
    ratios = []
    for seed in range(20):
        context = context_of(seed, 128)
        partners: list[int] = []
        context.read = lambda index, seen=partners: (seen.append(index), marked(index))[1]
        found = Chain({"letterbox": Letterbox(), "mixup": MixUp(probability=1.0)})(marked(3), context)
        first, second = (letterbox(marked(index), 128) for index in (3, *partners))
        np.testing.assert_allclose(found.boxes_xyxy, np.concatenate([first.boxes_xyxy, second.boxes_xyxy]))
        assert found.labels.tolist() == [3, partners[0] % 5]
        difference = first.image.astype(float) - second.image
        ratio = ((found.image - second.image.astype(float)) * difference).sum() / max(1, (difference**2).sum())
        if (difference != 0).any():
            mixed = first.image * ratio + second.image * (1 - ratio)
            assert np.abs(found.image - mixed).max() <= 2
            ratios.append(ratio)
    assert 0.3 < min(ratios) < 0.5 < max(ratios) < 0.7


def test_a_partner_goes_through_the_earlier_steps() -> None:
    seen = []

    class Spy:
        def __call__(self, sample: Sample, context: Context) -> Sample:
            seen.append(len(sample.boxes_xyxy))
            return sample

    chain = Chain(
        {"mosaic": Mosaic(), "affine": RandomAffine(), "spy": Spy(), "mixup": MixUp(probability=1), "2": Spy()}
    )
    out = np.empty((64, 64, 3), np.uint8)
    for seed in range(5):
        context = context_of(seed)
        context.out = out
        found = chain(marked(seed), context)
        assert found.image.ctypes.data == out.ctypes.data
        own, partner, both = seen[-3:]
        assert own + partner == both == len(found.boxes_xyxy)


def test_pasted_objects_are_found_at_their_boxes() -> None:
    pasted, mirrored = 0, 0
    for seed in range(60):
        chain = Chain({"letterbox": Letterbox(), "paste": CopyPaste(probability=1.0, share=1.0)})
        found = chain(marked(0), context_of(seed, 128))
        check_marks(found, tolerance_px=2)
        if len(found.labels) == 2 and found.labels[1] != 0:
            pasted += 1
            plain = [letterbox(marked(index), 128).boxes_xyxy[0] for index in range(20)]
            mirrored += not any(np.allclose(found.boxes_xyxy[1], box) for box in plain)
    assert pasted > 15 and 5 < mirrored < pasted - 5


def test_a_box_that_would_hide_another_is_not_pasted() -> None:
    np.testing.assert_allclose(
        hidden_parts(np.array([[0, 0, 10, 10], [5, 5, 10, 10], [50, 50, 60, 60]]), np.array([5, 0, 20, 20])),
        [0.5, 1, 0],
    )

    def read(index: int) -> Sample:
        return marked(index if index else 1)

    for seed in range(40):
        context = Context(np.random.default_rng(seed), read, 20, 128)
        chain = Chain({"letterbox": Letterbox(), "paste": CopyPaste(probability=1.0, share=1.0, max_hidden=0.0)})
        found = chain(marked(5), context)
        if len(found.labels) == 2 and found.labels[1]:
            first = found_box(found.image, COLORS[0])
            np.testing.assert_allclose(first, found.boxes_xyxy[0], atol=2)  # nothing of it is hidden
    never = CopyPaste(probability=1.0, share=0.0)(letterbox(marked(1), 64), context_of(0))
    assert len(never.labels) == 1


@pytest.mark.parametrize("step", [MixUp(probability=0.0), CopyPaste(probability=0.0)])
def test_a_step_that_is_off_draws_nothing(step: MixUp | CopyPaste) -> None:
    context = context_of(1)
    sample = marked(1)
    assert step(sample, context) is sample
    assert context.rng.random() == np.random.default_rng(1).random()
    assert step.merges == 1 and type(step)(probability=0.1).merges == 2


def test_shared_pictures_are_not_written_to() -> None:
    def read(index: int) -> Sample:
        sample = letterbox(marked(index), 64)
        sample.image.flags.writeable = False
        return sample

    for step in (MixUp(probability=1.0), CopyPaste(probability=1.0, share=1.0)):
        shared, before = read(2), read(2).image.copy()
        step(shared, Context(np.random.default_rng(0), read, 20, 64))
        np.testing.assert_array_equal(read(2).image, before)


def test_a_step_is_on_in_its_epochs_only() -> None:
    chain = Chain({"mosaic": Mosaic(), "affine": RandomAffine(translate=0, scale=0)}, {"mosaic": Stage(2, 5)})
    for epoch in range(8):
        context = context_of(3)
        context.epoch = epoch
        found = chain(marked(3), context)
        whole = np.array_equal(found.image, letterbox(marked(3), 64).image)
        assert whole == (epoch not in (2, 3, 4))
    assert 10**6 in Stage(3) and 2 not in Stage(3) and 0 not in Stage(0, 0)


STEPS = [{"name": "HorizontalFlip", "arguments": {"p": 0.5}}, {"name": "Affine", "arguments": {"p": 1.0, "rotate": 8}}]


def test_a_library_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "albumentations", None)
    with pytest.raises(ConfigError, match=r"pip install 'msrun-cli\[albumentations\]'"):
        Albumentations(steps=STEPS)


needs_library = pytest.mark.skipif(
    importlib.util.find_spec("albumentations") is None, reason="albumentations is not installed"
)


@needs_library
def test_boxes_follow_the_pixels_of_the_library() -> None:
    chain = Chain({"letterbox": Letterbox(), "library": Albumentations(steps=STEPS)})
    checked = 0
    for seed in range(30):
        found, again = (chain(marked(seed), context_of(seed, 200)) for _ in range(2))
        np.testing.assert_array_equal(found.image, again.image)
        np.testing.assert_array_equal(found.boxes_xyxy, again.boxes_xyxy)
        inside = (found.boxes_xyxy > 0).all(axis=1) & (found.boxes_xyxy < 200).all(axis=1)
        checked += check_marks(Sample(found.image, found.boxes_xyxy[inside], found.labels[inside]), 3)
    assert checked > 15


@needs_library
@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"name": "Blurr"}, 'no transform "Blurr"'),
        ({"name": "Compose"}, 'no transform "Compose"'),
        ({"name": "Blur", "arguments": {"nonsense": 3}}, "nonsense"),
        ({"name": "Blur", "p": 1}, "keys are name and arguments"),
    ],
)
def test_wrong_steps_of_the_library_are_errors(step: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Albumentations(steps=[step])
