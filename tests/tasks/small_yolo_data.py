"""A small dataset in YOLO's layout."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np


def write_yolo_data(root: Path, classes: int, broken: bool = False) -> Path:
    """Eight grey images with one bright box each; returns data.yaml. `broken`: one image file is cut in half."""
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        images, labels = root / "images" / split, root / "labels" / split
        images.mkdir(parents=True)
        labels.mkdir(parents=True)
        for index in range(8):
            picture = rng.integers(60, 120, (96, 128, 3), dtype=np.uint8)
            picture[20:70, 30:90] = 220
            name = "broken" if broken and index == 3 and split == "train" else f"image {index}"
            ok, encoded = cv2.imencode(".jpg", picture)
            assert ok
            data = encoded.tobytes()
            (images / f"{name}.jpg").write_bytes(data[: len(data) // 2] if name == "broken" else data)
            (labels / f"{name}.txt").write_text(f"{index % classes} 0.46875 0.46875 0.46875 0.52083\n")
    names = [f"class {index}" for index in range(classes)]
    path = root / "data.yaml"
    path.write_text(f"path: {root}\ntrain: images/train\nval: images/val\nnames: {names}\n", encoding="utf-8")
    return path
