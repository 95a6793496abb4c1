"""Small folders of classes with generated pictures."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

CLASSES = ("ants", "bees", "wasps")


def write_picture(path: Path, seed: int, height: int = 40, width: int = 48) -> None:
    """A smooth picture, so that JPEG changes little."""
    path.parent.mkdir(parents=True, exist_ok=True)
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    _, data = cv2.imencode(path.suffix, cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC))
    path.write_bytes(data.tobytes())


def write_class_folders(root: Path, train: int = 8, val: int = 3, classes: tuple[str, ...] = CLASSES) -> Path:
    """`train` and `val` pictures per class, named like their class."""
    for split, count in (("train", train), ("val", val)):
        for label, name in enumerate(classes):
            for index in range(count):
                seed = 1000 * label + index + 500 * (split == "val")
                write_picture(root / split / name / f"{name}{index}.jpg", seed)
    return root
