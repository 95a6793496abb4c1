"""Arithmetic on boxes_xyxy (N, 4) float32."""

from __future__ import annotations

import numpy as np


def clip_boxes(boxes_xyxy: np.ndarray, width: float, height: float) -> np.ndarray:
    """A copy of the boxes, cut at the borders of a width x height picture."""
    return np.clip(boxes_xyxy, 0, np.array([width, height, width, height], boxes_xyxy.dtype))


def has_area(boxes_xyxy: np.ndarray) -> np.ndarray:
    """bool (N,): boxes whose sides are both longer than 0."""
    return (boxes_xyxy[:, 2] > boxes_xyxy[:, 0]) & (boxes_xyxy[:, 3] > boxes_xyxy[:, 1])
