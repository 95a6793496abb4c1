"""Small COCO datasets on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np


def write_image(path: Path, width: int = 64, height: int = 48, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    picture = cv2.resize(rng.integers(0, 256, (6, 8, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
    cv2.imwrite(str(path), picture)
    return path


def image(identity: int | str, file_name: str, width: int = 64, height: int = 48) -> dict[str, Any]:
    return {"id": identity, "file_name": file_name, "width": width, "height": height}


def annotation(
    identity: int, image_id: int | str, bbox: list[float], category_id: int = 1, iscrowd: int = 0
) -> dict[str, Any]:
    return {"id": identity, "image_id": image_id, "category_id": category_id, "bbox": bbox, "iscrowd": iscrowd}


def write_split(
    root: Path,
    images: list[dict[str, Any]],
    annotations: list[dict[str, Any]],
    categories: list[tuple[int, str]] = [(1, "cat"), (7, "dog")],  # noqa: B006 - never changed
    file: str = "annotations/instances_train.json",
    folder: str | None = "images/train",
) -> Path:
    """Write the JSON and, if `folder` is given, an image file for each of `images`."""
    content = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": identity, "name": name} for identity, name in categories],
    }
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    if folder is not None:
        for number, entry in enumerate(images):
            write_image(root / folder / entry["file_name"], entry["width"], entry["height"], seed=number)
    return path


def small_coco(root: Path, count: int = 12, boxes: int = 2) -> Path:
    """`count` images of 64x48 with `boxes` boxes each."""
    images = [image(number, f"{number:03d}.png") for number in range(count)]
    rng = np.random.default_rng(5)
    annotations = [
        annotation(number, number // boxes, [*rng.integers(0, 24, 2).tolist(), 20, 20], (1, 7)[number % 2])
        for number in range(count * boxes)
    ]
    write_split(root, images, annotations)
    return root
