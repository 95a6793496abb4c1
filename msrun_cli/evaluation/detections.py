"""What a detector found in one image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Boxes of one image, best score first.

    boxes_xyxy: (n, 4) float32, x1 y1 x2 y2 in pixels of the original image.
    scores: (n,) float32, 0..1.
    labels: (n,) int64, class index.
    """

    boxes_xyxy: np.ndarray
    scores: np.ndarray
    labels: np.ndarray

    @classmethod
    def empty(cls) -> Detections:
        return cls(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.scores)

    def above(self, minimum_score: float) -> Detections:
        """Those with at least `minimum_score`."""
        chosen = self.scores >= minimum_score
        return Detections(self.boxes_xyxy[chosen], self.scores[chosen], self.labels[chosen])
