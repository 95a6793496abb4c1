"""Class-aware non-maximum suppression of one image.

There is no time limit: the result never depends on the speed of the machine. The cost is bounded by `max_candidates`
and by stopping at `max_detections` boxes, since the boxes are kept in the order of their scores.
"""

from __future__ import annotations

import numpy as np


def non_max_suppression(
    prediction: np.ndarray,
    *,
    confidence: float,
    iou: float,
    max_detections: int,
    multi_label: bool,
    max_candidates: int = 30000,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes_xyxy (n, 4) float32, scores (n,) float32 and labels (n,) int64, best first, n <= max_detections.

    prediction: (N, 5 + num_classes) with rows cx, cy, w, h (any unit, the result has the same), objectness and class
        scores, both 0..1 (after the sigmoid). Rows with numbers that are not finite are left out.
    confidence: a candidate needs objectness > confidence and score = objectness * class score > confidence.
    iou: a box is suppressed by a better one of its class when their IoU > iou.
    multi_label: each class above `confidence` makes a candidate of the box; else only its best class.
    max_candidates: only that many best candidates are looked at.

    Candidates of equal score keep the order of their rows, then of their classes.
    """
    boxes_xyxy, scores, labels = _candidates(prediction, confidence, multi_label, max_candidates)
    kept = _greedy(boxes_xyxy, labels, iou, max_detections)
    return boxes_xyxy[kept], scores[kept], labels[kept]


def _candidates(
    prediction: np.ndarray, confidence: float, multi_label: bool, max_candidates: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (xyxy), scores and labels above `confidence`, best score first."""
    prediction = np.asarray(prediction, np.float32)
    num_classes = prediction.shape[1] - 5
    rows = prediction[prediction[:, 4] > confidence]
    rows = rows[np.isfinite(rows[:, :5]).all(axis=1)]
    class_scores = rows[:, 5:] * rows[:, 4:5]
    if multi_label:
        flat = np.flatnonzero(class_scores > confidence)
    else:
        best = class_scores.argmax(axis=1) + np.arange(len(rows)) * num_classes
        flat = best[class_scores.ravel()[best] > confidence]
    scores = class_scores.ravel()[flat]
    order = _best_first(scores, max_candidates)
    row, labels = np.divmod(flat[order], num_classes)
    return _cxcywh_to_xyxy(rows[row, :4]), scores[order], labels.astype(np.int64)


def _best_first(scores: np.ndarray, limit: int) -> np.ndarray:
    """Indices of the `limit` best scores in falling order; of equal ones the earlier come first and stay."""
    if scores.size <= limit:
        return np.argsort(-scores, kind="stable")
    worst = np.partition(scores, scores.size - limit)[scores.size - limit]
    above = np.flatnonzero(scores > worst)
    equal = np.flatnonzero(scores == worst)[: limit - above.size]
    return np.concatenate((above[np.argsort(-scores[above], kind="stable")], equal))


def _cxcywh_to_xyxy(boxes_cxcywh: np.ndarray) -> np.ndarray:
    half = boxes_cxcywh[:, 2:] * np.float32(0.5)
    return np.concatenate((boxes_cxcywh[:, :2] - half, boxes_cxcywh[:, :2] + half), axis=1)


def _greedy(boxes_xyxy: np.ndarray, labels: np.ndarray, iou: float, max_detections: int) -> np.ndarray:
    """Indices of the kept boxes; the input is sorted by score."""
    groups = _groups_by_class(boxes_xyxy, labels)
    alive = np.ones(len(labels), bool)
    kept: list[int] = []
    position = 0
    while len(kept) < max_detections and position < len(alive):
        # argmax of booleans stops at the first True: the next box in the order of scores
        position += int(alive[position:].argmax())
        if not alive[position]:
            break
        kept.append(position)
        label = int(labels[position])
        members, columns = groups[label]
        # whatever is dead has left the group, so its head is the box just kept
        overlaps = _overlaps(columns, iou)
        overlaps[0] = True
        alive[members[overlaps]] = False
        rest = ~overlaps
        groups[label] = members[rest], columns[:, rest]
    return np.array(kept, np.int64)


def _groups_by_class(boxes_xyxy: np.ndarray, labels: np.ndarray) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Class -> (indices in the order of scores, (5, n) array of x1, y1, x2, y2 and area)."""
    sides = boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]
    columns = np.concatenate((boxes_xyxy.T, (sides[:, 0] * sides[:, 1])[None]))
    by_class = np.argsort(labels, kind="stable")
    present, starts = np.unique(labels[by_class], return_index=True)
    members = np.split(by_class, starts[1:])
    return {int(label): (indices, columns[:, indices]) for label, indices in zip(present, members, strict=False)}


def _overlaps(columns: np.ndarray, iou: float) -> np.ndarray:
    """Which boxes of the group have an IoU above `iou` with its first box."""
    x1, y1, x2, y2, area = columns
    width = np.minimum(x2, x2[0]) - np.maximum(x1, x1[0])
    height = np.minimum(y2, y2[0]) - np.maximum(y1, y1[0])
    intersection = np.maximum(width, 0) * np.maximum(height, 0)
    # multiplied instead of divided: two boxes without area have no union to divide by
    return intersection > np.float32(iou) * (area + area[0] - intersection)
