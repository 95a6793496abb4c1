"""Loads the figures of the reference implementation, which stand outside the repository."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def load_parity(shared_data: Path) -> dict[str, np.ndarray]:
    """What ultralytics/yolov5 computes with yolov5n on eight letterboxed images of 320 px (float32, CPU)."""
    with np.load(shared_data / "reference" / "yolov5n_320_parity.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


def padded_targets(rows: np.ndarray, batch: int, maximum: int) -> np.ndarray:
    """(N, 6) [image, class, cx, cy, w, h] -> (batch, maximum, 5) with class -1 = padding."""
    targets = np.full((batch, maximum, 5), -1, np.float32)
    filled = [0] * batch
    for row in rows:
        image = int(row[0])
        targets[image, filled[image]] = row[1:]
        filled[image] += 1
    return targets


def mindspore_name(name: str) -> str:
    """PyTorch's name of a parameter -> ours."""
    for theirs, ours in (
        ("bn.weight", "bn.gamma"),
        ("bn.bias", "bn.beta"),
        ("running_mean", "moving_mean"),
        ("running_var", "moving_variance"),
    ):
        name = name.replace(theirs, ours)
    return name


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest deviation, relative to the largest expected magnitude."""
    return float(np.abs(found - expected).max() / max(float(np.abs(expected).max()), 1e-12))
