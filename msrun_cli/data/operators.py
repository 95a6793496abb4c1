"""The operations of a classification chain on one picture, done by MindSpore's C++ operators."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mindspore.dataset import vision
from mindspore.dataset.vision import Inter

from msrun_cli.runtime.mindspore_versions import seed_operators

_SEEDED = threading.Lock()
_DUMP = Path("abnormal_image.jpg")


class Operators:
    """Pictures are uint8 (H, W, 3) RGB; every method gives a new one.

    dvpp: decode, resize and crop on an Ascend's image unit instead of on the CPU.
    """

    def __init__(self, dvpp: bool = False) -> None:
        self.dvpp = dvpp

    def decode(self, content: np.ndarray) -> np.ndarray:
        """uint8 (N,) of a JPEG, PNG, BMP or TIFF file. Raises RuntimeError when it is damaged or no such file."""
        operator = self._placed(vision.Decode())
        return _decoded(content, operator)

    def decode_random_crop(
        self, content: np.ndarray, seed: int, size: int, scale: Sequence[float], ratio: Sequence[float]
    ) -> np.ndarray:
        """Decode only what a random crop needs and resize it: see transforms.classification.RandomResizedCrop."""
        operator = vision.RandomCropDecodeResize(size, tuple(scale), tuple(ratio), Inter.BILINEAR)
        # The operator draws from a generator that it makes from the process's seed when it is called.

        def seeded(content: np.ndarray) -> np.ndarray:
            with _SEEDED:
                seed_operators(seed)
                return operator(content)

        return _decoded(content, seeded)

    def resized_crop(self, image: np.ndarray, top: int, left: int, height: int, width: int, size: int) -> np.ndarray:
        operator = vision.ResizedCrop(top, left, height, width, (size, size), Inter.BILINEAR)
        return self._placed(operator)(image)

    def resize(self, image: np.ndarray, height: int, width: int) -> np.ndarray:
        return self._placed(vision.Resize((height, width), Inter.BILINEAR))(image)

    def crop(self, image: np.ndarray, top: int, left: int, height: int, width: int) -> np.ndarray:
        return self._placed(vision.Crop((top, left), (height, width)))(image)

    def pad(self, image: np.ndarray, padding: int) -> np.ndarray:
        return vision.Pad(padding)(image)

    def flip(self, image: np.ndarray) -> np.ndarray:
        return vision.HorizontalFlip()(image)

    def brightness(self, image: np.ndarray, factor: float) -> np.ndarray:
        return vision.AdjustBrightness(factor)(image)

    def contrast(self, image: np.ndarray, factor: float) -> np.ndarray:
        return vision.AdjustContrast(factor)(image)

    def saturation(self, image: np.ndarray, factor: float) -> np.ndarray:
        return vision.AdjustSaturation(factor)(image)

    def sharpness(self, image: np.ndarray, factor: float) -> np.ndarray:
        return vision.AdjustSharpness(factor)(image)

    def hue(self, image: np.ndarray, shift: float) -> np.ndarray:
        """shift: -0.5..0.5 of the circle."""
        return vision.AdjustHue(shift)(image)

    def auto_contrast(self, image: np.ndarray) -> np.ndarray:
        return vision.AutoContrast()(image)

    def equalize(self, image: np.ndarray) -> np.ndarray:
        return vision.Equalize()(image)

    def posterize(self, image: np.ndarray, bits: int) -> np.ndarray:
        return vision.Posterize(bits)(image)

    def solarize(self, image: np.ndarray, threshold: float) -> np.ndarray:
        return vision.Solarize((threshold, 255.0))(image)

    def rotate(self, image: np.ndarray, degrees: float) -> np.ndarray:
        return vision.Rotate(degrees, Inter.BILINEAR)(image)

    def affine(
        self,
        image: np.ndarray,
        translate: tuple[float, float] = (0.0, 0.0),
        shear: tuple[float, float] = (0.0, 0.0),
    ) -> np.ndarray:
        """translate: fractions of width and height; shear: degrees along x and y."""
        return vision.Affine(0.0, translate, 1.0, shear, Inter.BILINEAR)(image)

    def erase(
        self, image: np.ndarray, top: int, left: int, height: int, width: int, value: tuple[int, int, int]
    ) -> np.ndarray:
        return vision.Erase(top, left, height, width, value)(image)

    def normalize(self, image: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
        """float32 (3, H, W), (x - mean) / std with mean and std on the 0..255 scale."""
        return vision.HWC2CHW()(vision.Normalize(list(mean), list(std), is_hwc=True)(image))

    def _placed(self, operator: Any) -> Any:
        return operator.device("Ascend") if self.dvpp else operator


def _decoded(content: np.ndarray, decode: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Twice before it is believed that a file is damaged: a JPEG that MindSpore fails on makes the next one of the same
    thread fail, too ("Empty input file").
    """
    try:
        return decode(content)
    except RuntimeError:
        try:
            return decode(content)
        finally:
            _remove_dump(content)


def _remove_dump(content: np.ndarray) -> None:
    """MindSpore copies a file that it fails on into the working directory."""
    try:
        if _DUMP.read_bytes() == content.tobytes():
            _DUMP.unlink()
    except OSError:
        pass  # there is none, or another worker was faster
