"""The evaluator: from predictions in network pixels to metrics and boxes of the original images."""

from __future__ import annotations

import numpy as np
import pytest
from small_splits import data_of, record, split_of

from msrun_cli.common.errors import ConfigError, DataError
from msrun_cli.evaluation.detection import DetectionEvaluator, to_original

BOXES = [[[10, 10, 50, 50]], [[60, 20, 90, 70]], [[0, 0, 30, 80]]]
GEOMETRY = np.array([0.64, 0, 6.4, 100, 80], np.float32)  # an image of 100 x 80 in the middle of 64 x 64


@pytest.fixture
def split():
    return split_of([record(number, boxes, [number]) for number, boxes in enumerate(BOXES)])


def batches_of(*groups):
    for group in groups:
        images = np.zeros((len(group), 64, 64, 3), np.uint8)
        images[:, 0, 0, 0] = np.maximum(group, 0)  # tells `perfect` which image it sees
        yield {
            "images": images,
            "index": np.array(group, np.int32),
            "geometry": np.repeat(GEOMETRY[None], len(group), axis=0),
        }


def perfect(images: np.ndarray) -> np.ndarray:
    predictions = np.zeros((len(images), 2, 8), np.float32)
    for prediction, number in zip(predictions, images[:, 0, 0, 0], strict=True):
        x1, y1, x2, y2 = np.array(BOXES[number][0]) * 0.64 + [0, 6.4, 0, 6.4]
        prediction[0, :5] = (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, 0.9
        prediction[0, 5 + number] = 0.8
    return predictions


def test_boxes_come_back_in_pixels_of_the_original(split):
    result = DetectionEvaluator()(perfect, batches_of([0, 1], [2]), split, data_of())
    assert result.metrics == pytest.approx({"map50_95": 1.0, "map50": 1.0, "map75": 1.0})
    assert result.images == 3
    for found, boxes in zip(result.detections, BOXES, strict=True):
        np.testing.assert_allclose(found.boxes_xyxy, boxes, atol=1e-3)
        assert found.scores == pytest.approx([0.72])
    assert min(result.predict_s, result.nms_s, result.score_s) > 0


def test_repeated_images_and_padding_count_once(split):
    result = DetectionEvaluator()(perfect, batches_of([0, 1], [2, 0], [1, -1]), split, data_of())
    assert result.images == 3
    assert result.metrics["map50_95"] == pytest.approx(1)


def test_images_that_never_came_are_none_and_do_not_count(split):
    result = DetectionEvaluator()(perfect, batches_of([1]), split, data_of())
    assert [found is None for found in result.detections] == [True, False, True]
    assert (result.images, result.metrics["map50"]) == (1, pytest.approx(1))


def test_no_batches_give_zeros(split):
    result = DetectionEvaluator()(perfect, [], split, data_of())
    assert (result.images, result.metrics["map50"]) == (0, 0)


def test_progress_and_padded_predictions(split):
    seen = []
    padded = DetectionEvaluator()(
        lambda images: np.concatenate((perfect(images), np.zeros((3, 2, 8), np.float32))),
        batches_of([0, 1], [2]),
        split,
        data_of(),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(2, 3), (3, 3)]
    assert padded.images == 3


def test_another_split_has_another_truth(split):
    evaluator = DetectionEvaluator()
    evaluator(perfect, batches_of([0, 1, 2]), split, data_of())
    empty = split_of([record(number) for number in range(3)])
    assert evaluator(perfect, batches_of([0, 1, 2]), empty, data_of()).metrics["map50"] == 0


def test_another_number_of_classes_is_an_error(split):
    with pytest.raises(DataError, match="2 classes"):
        DetectionEvaluator()(perfect, batches_of([0]), split, data_of(("cat", "dog"), (0, 1)))


@pytest.mark.parametrize("options", [{"confidence": 1.5}, {"iou": -0.1}, {"max_detections": 0}])
def test_impossible_settings_name_the_key(options):
    with pytest.raises(ConfigError, match=f"evaluator.{next(iter(options))}"):
        DetectionEvaluator(**options)


def test_boxes_are_clipped_to_the_image():
    boxes_xyxy = np.array([[-10, -10, 200, 200]], np.float32)
    np.testing.assert_array_equal(to_original(boxes_xyxy, GEOMETRY), [[0, 0, 100, 80]])
    assert to_original(np.zeros((0, 4), np.float32), GEOMETRY).shape == (0, 4)


@pytest.mark.parametrize("shares", [([0, 2], [1]), ([0, 1, 2], []), ([0, 2], [1, 0])])
def test_shares_of_two_ranks_give_the_whole_result(split, shares):
    def with_nothing_on_image_1(images):
        predictions = perfect(images)
        predictions[images[:, 0, 0, 0] == 1, :, 4] = 0
        return predictions

    def evaluate(groups, gather=None):
        return DetectionEvaluator()(with_nothing_on_image_1, batches_of(*groups), split, data_of(), gather=gather)

    expected = evaluate([[0, 1, 2]])
    sent = []
    for share in shares:
        evaluate([share] if share else [], gather=lambda arrays: sent.append(arrays) or [arrays])
    for share in shares:
        found = evaluate([share] if share else [], gather=lambda arrays: sent)
        assert found.metrics == expected.metrics and found.images == 3
        for one, other in zip(found.detections, expected.detections, strict=True):
            for name in ("boxes_xyxy", "scores", "labels"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
                assert getattr(one, name).dtype == getattr(other, name).dtype
