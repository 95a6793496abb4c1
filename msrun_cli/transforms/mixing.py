"""Mixup and cutmix: pictures of a batch are joined in pairs, and so are their labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from msrun_cli.common.errors import ConfigError


@dataclass(frozen=True)
class MixBatch:
    """Each picture is joined with another one of its batch.

    Mixup (Zhang et al. 2017): share * a + (1 - share) * b. Cutmix (Yun et al. 2019): a rectangle of b, whose part of
    the area is 1 - share, is pasted into a. The labels become class probabilities with the same shares.

    mixup, cutmix: alpha of the Beta(alpha, alpha) distribution that the share is drawn from; 0 = never. With both,
        each batch is one or the other, half of the time.
    probability: share of batches that are mixed, 0..1.
    """

    mixup: float = 0.0
    cutmix: float = 0.0
    probability: float = 1.0

    def __post_init__(self) -> None:
        for name in ("mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise ConfigError(f"train_transforms.mix.{name}={getattr(self, name)}: must be at least 0 (0 = off).")
        if not 0 <= self.probability <= 1:
            raise ConfigError(f"train_transforms.mix.probability={self.probability}: must be in 0..1.")

    @property
    def enabled(self) -> bool:
        return (self.mixup > 0 or self.cutmix > 0) and self.probability > 0

    def __call__(
        self, rng: np.random.Generator, images: np.ndarray, labels: np.ndarray, num_classes: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """images (B, H, W, 3) uint8 or (B, 3, H, W) float32, labels int (B,) -> images of that kind, float32 (B, C)."""
        soft = one_hot(labels, num_classes)
        if rng.random() >= self.probability:
            return images, soft
        partner = rng.permutation(len(images))
        cut = self.cutmix > 0 and (self.mixup == 0 or rng.random() < 0.5)
        alpha = self.cutmix if cut else self.mixup
        share = float(rng.beta(alpha, alpha))
        if cut:
            images, share = _pasted(rng, images, partner, share)
        else:
            images = _blended(images, partner, share)
        return images, np.float32(share) * soft + np.float32(1 - share) * soft[partner]


def one_hot(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """float32 (B, C) from int (B,)."""
    return np.eye(num_classes, dtype=np.float32)[labels]


def _blended(images: np.ndarray, partner: np.ndarray, share: float) -> np.ndarray:
    mixed = images * np.float32(share)
    mixed += images[partner] * np.float32(1 - share)
    return mixed if images.dtype != np.uint8 else np.rint(mixed, out=mixed).astype(np.uint8)


def _pasted(
    rng: np.random.Generator, images: np.ndarray, partner: np.ndarray, share: float
) -> tuple[np.ndarray, float]:
    """The share is that of the pixels that stay, since the rectangle is cut at the border."""
    channels_last = images.dtype == np.uint8
    height, width = images.shape[1:3] if channels_last else images.shape[2:4]
    side = np.sqrt(1 - share)
    h, w = round(height * side), round(width * side)
    y, x = int(rng.integers(height)), int(rng.integers(width))
    top, bottom = max(0, y - h // 2), min(height, y + (h + 1) // 2)
    left, right = max(0, x - w // 2), min(width, x + (w + 1) // 2)
    box = np.s_[:, top:bottom, left:right] if channels_last else np.s_[:, :, top:bottom, left:right]
    mixed = images.copy()
    mixed[box] = images[partner][box]
    return mixed, 1 - (bottom - top) * (right - left) / (height * width)
