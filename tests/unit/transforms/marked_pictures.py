"""Pictures whose objects are known by their colour, so that boxes can be found again in the pixels."""

from __future__ import annotations

import numpy as np

from msrun_cli.transforms.sample import Context, Geometry, Sample

SIZE = 64
COLORS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255)]


def marked(index: int, height: int = 90, width: int = 120) -> Sample:
    """A grey picture with one filled rectangle in the colour of its class."""
    rng = np.random.default_rng(index)
    image = np.full((height, width, 3), 60, np.uint8)
    x, y = rng.integers(3, width - 43), rng.integers(3, height - 33)
    image[y : y + 30, x : x + 40] = COLORS[index % 5]
    box = np.array([[x, y, x + 40, y + 30]], np.float32)
    return Sample(image, box, np.array([index % 5]), Geometry.identity(width, height))


def context_of(seed: int, size: int = SIZE) -> Context:
    return Context(np.random.default_rng(seed), marked, 20, size)


def found_box(image: np.ndarray, color: tuple[int, int, int], tolerance: int = 60) -> list[int] | None:
    rows, columns = np.nonzero((np.abs(image.astype(int) - color) < tolerance).all(axis=2))
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1] if len(rows) else None


def check_marks(sample: Sample, tolerance_px: float) -> int:
    """Each class that occurs once is found where its box says."""
    checked = 0
    for label in np.unique(sample.labels):
        if np.count_nonzero(sample.labels == label) == 1:
            box = sample.boxes_xyxy[sample.labels == label][0]
            np.testing.assert_allclose(found_box(sample.image, COLORS[label]), box, atol=tolerance_px)
            checked += 1
    return checked
