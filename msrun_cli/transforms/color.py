"""Random changes of colour."""

from __future__ import annotations

import cv2
import numpy as np

from msrun_cli.transforms.sample import Context, Sample

_STRIP_ROWS = 64  # the intermediate colours stay in the processor's cache, and no large memory is asked for


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
        table = np.ascontiguousarray(np.clip(levels, 0, 255).astype(np.uint8).T[None])
        image = sample.own_image(context.out)
        strip = np.empty((min(_STRIP_ROWS, len(image)), *image.shape[1:]), np.uint8)
        for top in range(0, len(image), _STRIP_ROWS):
            rows = image[top : top + _STRIP_ROWS]
            hsv = cv2.cvtColor(rows, cv2.COLOR_RGB2HSV, dst=strip[: len(rows)])
            cv2.cvtColor(cv2.LUT(hsv, table, dst=hsv), cv2.COLOR_HSV2RGB, dst=rows)
        return sample
