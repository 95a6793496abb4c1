"""Steps of a classification chain, as plans: what to do with a picture is drawn here, doing it is the pipeline's work.

A plan is a list of `Operation`s for a picture of a given height and width; the pipeline runs them with MindSpore's C++
operators. All randomness comes from the Generator that is passed in, so a picture depends on (seed, epoch, position)
alone, however many workers there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from msrun_cli.common.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class Operation:
    """name: a method of `data.operators.Operators`; arguments: its keyword arguments."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RandomResizedCrop:
    """A part of the picture with a random area and aspect ratio, resized to the network's size (Szegedy et al. 2015).

    scale: fractions of the area, 0..1; ratio: width / height, drawn evenly in its logarithm.
    fused: decode and crop in one operator, which reads only the needed part of a JPEG. MindSpore seeds it for the whole
        process, so threads take turns at it; processes (dataset.python_multiprocessing=true) do not. It has no
        counterpart on an Ascend's image unit, so device.dvpp goes without it.
    """

    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (0.75, 4 / 3)
    fused: bool = True

    def __post_init__(self) -> None:
        _require_range("random_resized_crop.scale", self.scale, 0, 1)
        _require_range("random_resized_crop.ratio", self.ratio, 0, math.inf)

    def plan_from_file(self, rng: np.random.Generator, size: int) -> list[Operation] | None:
        """The plan for an encoded picture, where decoding is part of it."""
        if not self.fused:
            return None
        arguments = {"seed": int(rng.integers(2**32)), "size": size, "scale": self.scale, "ratio": self.ratio}
        return [Operation("decode_random_crop", arguments)]

    def plan(self, rng: np.random.Generator, height: int, width: int, size: int) -> list[Operation]:
        for _ in range(10):
            area = height * width * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
                return [_crop_to(top, left, h, w, size)]
        # No crop fits a very long picture: the largest centred one with an allowed ratio.
        w = min(width, round(height * self.ratio[1]))
        h = min(height, round(width / self.ratio[0]))
        return [_crop_to((height - h) // 2, (width - w) // 2, h, w, size)]


@dataclass(frozen=True)
class RandomCrop:
    """`padding` black pixels on each side, then a random part of the network's size (He et al. 2015, section 4.2)."""

    padding: int = 4

    def __post_init__(self) -> None:
        _require("random_crop.padding", self.padding >= 0, self.padding, "at least 0 pixels")

    def plan(self, rng: np.random.Generator, height: int, width: int, size: int) -> list[Operation]:
        operations = [Operation("pad", {"padding": self.padding})] if self.padding else []
        height, width = height + 2 * self.padding, width + 2 * self.padding
        if height < size or width < size:
            operations = [Operation("resize", {"height": size, "width": size}), *operations]
            height = width = size + 2 * self.padding
        top, left = int(rng.integers(height - size + 1)), int(rng.integers(width - size + 1))
        return [*operations, Operation("crop", {"top": top, "left": left, "height": size, "width": size})]


@dataclass(frozen=True)
class RandomFlip:
    """Mirror left and right with `probability`."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        _require("flip.probability", 0 <= self.probability <= 1, self.probability, "in 0..1")

    def plan(self, rng: np.random.Generator, height: int, width: int, size: int) -> list[Operation]:
        return [Operation("flip")] if rng.random() < self.probability else []


@dataclass(frozen=True)
class ColorJitter:
    """Brightness, contrast and saturation times 1 +- x, hue turned by +- x of the circle, in random order."""

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            _require(f"color_jitter.{name}", 0 <= getattr(self, name) <= 1, getattr(self, name), "in 0..1")
        _require("color_jitter.hue", 0 <= self.hue <= 0.5, self.hue, "in 0..0.5")

    def plan(self, rng: np.random.Generator, height: int, width: int, size: int) -> list[Operation]:
        operations = [
            Operation(name, {"factor": rng.uniform(1 - spread, 1 + spread)})
            for name, spread in (
                ("brightness", self.brightness),
                ("contrast", self.contrast),
                ("saturation", self.saturation),
            )
            if spread
        ]
        if self.hue:
            operations.append(Operation("hue", {"shift": rng.uniform(-self.hue, self.hue)}))
        return [operations[index] for index in rng.permutation(len(operations))]


@dataclass(frozen=True)
class Resize:
    """The short side to `size` pixels, the aspect ratio kept; null = the network's size times 256 / 224."""

    size: int | None = None

    def __post_init__(self) -> None:
        _require("resize.size", self.size is None or self.size > 0, self.size, "at least 1 pixel, or null")

    def plan(self, rng: np.random.Generator, height: int, width: int, size: int) -> list[Operation]:
        short = self.size or round(size * 256 / 224)
        factor = short / min(height, width)
        target = (short, round(width * factor)) if height <= width else (round(height * factor), short)
        if target == (height, width):
            return []
        return [Operation("resize", {"height": target[0], "width": target[1]})]


@dataclass(frozen=True)
class CenterCrop:
    """The middle part of the network's size."""

    def plan(self, rng: np.random.Generator, height: int, width: int, size: int) -> list[Operation]:
        if height < size or width < size:
            raise DataError(
                f"center_crop: the picture is {width}x{height} here, smaller than image_size={size}. "
                "Put a resize step before it, with a size of at least image_size."
            )
        top, left = (height - size) // 2, (width - size) // 2
        if (height, width) == (size, size):
            return []
        return [Operation("crop", {"top": top, "left": left, "height": size, "width": size})]


@dataclass(frozen=True)
class RandomErasing:
    """A rectangle is filled with one colour (Zhong et al. 2017).

    probability: 0..1; scale: fractions of the area; ratio: width / height; value: 0..255, null = a random colour.
    """

    probability: float = 0.25
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: int | None = None

    def __post_init__(self) -> None:
        _require("random_erasing.probability", 0 <= self.probability <= 1, self.probability, "in 0..1")
        _require_range("random_erasing.scale", self.scale, 0, 1)
        _require_range("random_erasing.ratio", self.ratio, 0, math.inf)
        good = self.value is None or 0 <= self.value <= 255
        _require("random_erasing.value", good, self.value, "in 0..255, or null for a random colour")

    def plan(self, rng: np.random.Generator, height: int, width: int, size: int) -> list[Operation]:
        if rng.random() >= self.probability:
            return []
        for _ in range(10):
            area = height * width * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w < width and 0 < h < height:
                box = {"top": int(rng.integers(height - h + 1)), "left": int(rng.integers(width - w + 1))}
                value = rng.integers(256, size=3).tolist() if self.value is None else [self.value] * 3
                return [Operation("erase", {**box, "height": h, "width": w, "value": tuple(value)})]
        return []


def _crop_to(top: int, left: int, height: int, width: int, size: int) -> Operation:
    return Operation("resized_crop", {"top": top, "left": left, "height": height, "width": width, "size": size})


def _require(key: str, good: bool, value: object, allowed: str) -> None:
    if not good:
        raise ConfigError(f"train_transforms.{key}={value}: must be {allowed}.")


def _require_range(key: str, pair: Sequence[float], low: float, high: float) -> None:
    good = len(pair) == 2 and low < pair[0] <= pair[1] <= high
    top = "" if high == math.inf else f" and at most {high:g}"
    _require(key, good, list(pair), f"two numbers [smallest, largest], larger than {low:g}{top}")
