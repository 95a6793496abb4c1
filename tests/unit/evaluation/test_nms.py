"""Non-maximum suppression against a plain loop, its limits and its speed."""

from __future__ import annotations

import time

import numpy as np
import pytest

from msrun_cli.evaluation.nms import non_max_suppression

DEFAULTS = {"confidence": 0.001, "iou": 0.6, "max_detections": 300, "multi_label": True}


def row(x1, y1, x2, y2, objectness, *classes):
    return [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, objectness, *classes]


def predictions(rng: np.random.Generator, count: int, num_classes: int = 4, size: float = 100) -> np.ndarray:
    values = rng.uniform(0, 1, (count, 5 + num_classes)).astype(np.float32)
    values[:, :2] *= size
    values[:, 2:4] = values[:, 2:4] * size / 2 + 1
    return values


def plain_nms(prediction, confidence, iou, max_detections, multi_label):
    candidates = []
    for number, (cx, cy, w, h, objectness, *classes) in enumerate(prediction.tolist()):
        if objectness <= confidence:
            continue
        chosen = range(len(classes)) if multi_label else [int(np.argmax(classes))]
        for label in chosen:
            score = np.float32(objectness) * np.float32(classes[label])
            if score > confidence:
                candidates.append((-score, number, label, (cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2)))
    kept = []
    for candidate in sorted(candidates):
        if all(candidate[2] != other[2] or plain_iou(candidate[3], other[3]) <= iou for other in kept):
            kept.append(candidate)
    return kept[:max_detections]


def plain_iou(a, b):
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    intersection = max(0, width) * max(0, height)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - intersection
    return intersection / union if union else 0


@pytest.mark.parametrize("multi_label", [True, False])
@pytest.mark.parametrize("max_detections", [5, 1000])
def test_same_as_a_plain_loop(multi_label, max_detections):
    prediction = predictions(np.random.default_rng(3), 120)
    options = {"confidence": 0.05, "iou": 0.45, "max_detections": max_detections, "multi_label": multi_label}
    boxes_xyxy, scores, labels = non_max_suppression(prediction, **options)
    expected = plain_nms(prediction, **options)
    assert len(expected) > 4
    assert labels.tolist() == [label for _, _, label, _ in expected]
    np.testing.assert_allclose(scores, [-score for score, _, _, _ in expected], rtol=1e-6)
    np.testing.assert_allclose(boxes_xyxy, [box for _, _, _, box in expected], rtol=1e-4, atol=1e-3)
    assert (boxes_xyxy.dtype, scores.dtype, labels.dtype) == (np.float32, np.float32, np.int64)


def test_a_box_is_suppressed_only_above_the_threshold_and_only_within_its_class():
    prediction = np.array(
        [
            row(0, 0, 10, 10, 1, 0.9, 0),
            row(0, 0, 10, 5, 1, 0.8, 0),  # IoU exactly 0.5
            row(0, 0, 10, 6, 1, 0.7, 0),  # IoU 0.6
            row(0, 0, 10, 10, 1, 0, 0.6),  # the same place, another class
        ]
    )
    _, scores, labels = non_max_suppression(prediction, **{**DEFAULTS, "iou": 0.5})
    np.testing.assert_allclose(scores, [0.9, 0.8, 0.6])
    assert labels.tolist() == [0, 0, 1]


def test_a_suppressed_box_suppresses_nothing():
    chain = [row(0, 0, 10, 10, 1, 0.9), row(3, 0, 13, 10, 1, 0.8), row(6, 0, 16, 10, 1, 0.7)]
    _, scores, _ = non_max_suppression(np.array(chain), **{**DEFAULTS, "iou": 0.5})
    np.testing.assert_allclose(scores, [0.9, 0.7])


def test_multi_label_makes_a_candidate_of_each_class():
    prediction = np.array([row(0, 0, 10, 10, 0.5, 0.8, 0.6, 0.001)])
    assert non_max_suppression(prediction, **DEFAULTS)[2].tolist() == [0, 1]
    assert non_max_suppression(prediction, **{**DEFAULTS, "multi_label": False})[2].tolist() == [0]


def test_equal_scores_keep_their_order_also_where_candidates_are_cut():
    apart = np.array([row(20 * i, 0, 20 * i + 10, 10, 1, 0.5) for i in range(50)])
    boxes_xyxy, _, _ = non_max_suppression(apart, **DEFAULTS, max_candidates=20)
    assert boxes_xyxy[:, 0].tolist() == [20 * i for i in range(20)]


def test_the_best_candidates_stay_when_there_are_too_many():
    prediction = predictions(np.random.default_rng(0), 500)
    prediction[:, 0] = 1000 * np.arange(500)  # none overlaps another
    _, all_scores, _ = non_max_suppression(prediction, **{**DEFAULTS, "max_detections": 10000})
    _, scores, _ = non_max_suppression(prediction, **{**DEFAULTS, "max_detections": 10000}, max_candidates=100)
    np.testing.assert_array_equal(scores, all_scores[:100])


@pytest.mark.parametrize(
    "prediction",
    [
        np.zeros((0, 7), np.float32),
        np.zeros((10, 7), np.float32),
        np.full((10, 7), np.nan, np.float32),
        np.array([row(0, 0, np.inf, 10, 1, 1, 1)]),
    ],
)
def test_nothing_usable_gives_nothing(prediction):
    boxes_xyxy, scores, labels = non_max_suppression(prediction, **DEFAULTS)
    assert (boxes_xyxy.shape, scores.shape, labels.shape) == ((0, 4), (0,), (0,))


def test_boxes_without_area_do_no_harm():
    prediction = np.array([row(5, 5, 5, 5, 1, 0.9), row(5, 5, 5, 5, 1, 0.8)])
    assert len(non_max_suppression(prediction, **DEFAULTS)[1]) == 2


def test_fast_enough_for_an_untrained_network():
    """Every class of every box passes the low threshold: 2 million candidates."""
    rng = np.random.default_rng(0)
    prediction = predictions(rng, 25200, 80, 640)
    prediction[:, 4] = rng.uniform(0.005, 0.02, 25200)
    started = time.perf_counter()
    _, scores, _ = non_max_suppression(prediction, **DEFAULTS)
    assert len(scores) == 300
    assert time.perf_counter() - started < 2  # 40 ms on an idle core; the limit leaves room for a busy machine
