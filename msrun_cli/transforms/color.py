"""Random changes of colour."""

from __future__ import annotations

import cv2
import numpy as np

from msrun_cli.transforms.sample import Context, Sample


class RandomHSV:
    """Multiply hue, saturation and value by factors drawn from [1 - gain, 1 + gain]; boxes stay.

    hue, saturation, value: the gains, 0..1
    """

    def __init__(self, *, hue: float = 0.015, saturation: float = 0.7, value: float = 0.4) -> None:
        self.gains = np.array([hue, saturation, value])

    def __call__(self, sample: Sample, context: Context) -> Sample:
        if not self.gains.any():
            return sample
        factors = 1 + context.rng.uniform(-1, 1, 3) * self.gains
        levels = np.arange(256) * factors[:, None]
        levels[0] %= 180  # OpenCV's 8-bit hue is degrees / 2
        table = np.clip(levels, 0, 255).astype(np.uint8).T[None]
        hsv = cv2.cvtColor(sample.image, cv2.COLOR_RGB2HSV)
        sample.image = cv2.cvtColor(cv2.LUT(hsv, np.ascontiguousarray(table)), cv2.COLOR_HSV2RGB)
        return sample
