"""RandAugment (Cubuk et al. 2019): a few operations, each drawn from a fixed list, all of one magnitude."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from msrun_cli.common.errors import ConfigError
from msrun_cli.transforms.classification import Operation

LARGEST_MAGNITUDE = 30
# Range of each operation at the largest magnitude; those with a sign are drawn to either side.
SIGNED = {
    "rotate": 30.0,  # degrees
    "shear_x": 16.7,  # degrees, tangent 0.3
    "shear_y": 16.7,
    "translate_x": 0.45,  # fraction of the side
    "translate_y": 0.45,
    "brightness": 0.9,  # factor 1 +- x
    "contrast": 0.9,
    "saturation": 0.9,
    "sharpness": 0.9,
}
CHOICES = ("identity", "auto_contrast", "equalize", "posterize", "solarize", *SIGNED)


@dataclass(frozen=True)
class RandAugment:
    """operations: how many a picture, one after the other; magnitude: 0..30, the strength of each."""

    operations: int = 2
    magnitude: float = 9

    def __post_init__(self) -> None:
        if self.operations < 0:
            raise ConfigError(f"train_transforms.rand_augment.operations={self.operations}: must be at least 0.")
        if not 0 <= self.magnitude <= LARGEST_MAGNITUDE:
            raise ConfigError(
                f"train_transforms.rand_augment.magnitude={self.magnitude}: must be in 0..{LARGEST_MAGNITUDE}."
            )

    def plan(self, rng: np.random.Generator, height: int, width: int, size: int) -> list[Operation]:
        names = [CHOICES[index] for index in rng.integers(len(CHOICES), size=self.operations)]
        return [self._operation(name, rng, height, width) for name in names if name != "identity"]

    def _operation(self, name: str, rng: np.random.Generator, height: int, width: int) -> Operation:
        strength = self.magnitude / LARGEST_MAGNITUDE
        if name in ("auto_contrast", "equalize"):
            return Operation(name)
        if name == "posterize":
            return Operation(name, {"bits": 8 - round(4 * strength)})
        if name == "solarize":
            return Operation(name, {"threshold": 255 * (1 - strength)})
        amount = SIGNED[name] * strength * (1 if rng.random() < 0.5 else -1)
        if name == "rotate":
            return Operation(name, {"degrees": amount})
        if name.startswith("shear"):
            return Operation("affine", {"shear": (amount, 0.0) if name == "shear_x" else (0.0, amount)})
        if name.startswith("translate"):
            # MindSpore takes the shift as a fraction of the side.
            return Operation("affine", {"translate": (amount, 0.0) if name == "translate_x" else (0.0, amount)})
        return Operation(name, {"factor": 1 + amount})
