"""The embedded default dataset: textured shapes, generated once into the cache, so that nothing is downloaded."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.common.files import cache_dir
from msrun_cli.data.coco import read_coco
from msrun_cli.data.records import DetectionData
from msrun_cli.data.shape_pictures import CLASS_NAMES, draw_picture

# Part of the cache folder's name: raise it with every change of the drawing code, so that no old pictures are reused.
GENERATOR_VERSION = 3

_JPEG_QUALITY = 92


def read_shapes(
    train_images: int = 800, val_images: int = 160, canvas: int = 192, generator_seed: int = 0
) -> DetectionData:
    """The generated dataset, in COCO format below the cache folder.

    train_images, val_images: how many pictures, at least 1
    canvas: side of the square pictures in pixels, at least 32
    generator_seed: other pictures of the same kind (0, 1, ...)
    The same settings give the same files (with the same numpy and OpenCV).
    """
    wrong = [
        f"dataset.{name}={value} must be at least {least}"
        for name, value, least in (
            ("train_images", train_images, 1),
            ("val_images", val_images, 1),
            ("canvas", canvas, 32),
            ("generator_seed", generator_seed, 0),
        )
        if value < least
    ]
    if wrong:
        raise DataError("; ".join(wrong) + ".")
    settings = {"train": train_images, "val": val_images, "canvas": canvas, "seed": generator_seed}
    key = json.dumps([GENERATOR_VERSION, settings]).encode()
    root = cache_dir() / f"shapes-{hashlib.sha256(key).hexdigest()[:12]}"
    if not root.is_dir():
        _generate_atomically(root, {"train": train_images, "val": val_images}, canvas, generator_seed)
    return read_coco(str(root), label_cache=False)  # read as fast as its index would be


def _generate_atomically(root: Path, counts: dict[str, int], canvas: int, seed: int) -> None:
    """Write into a sibling folder and rename it; another process that was faster has written the same."""
    logging.getLogger("msrun").info("generating %d pictures of shapes into %s", sum(counts.values()), root)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))
    except OSError as error:
        raise DataError(
            f"the shapes dataset cannot be written below {root.parent}: {error.strerror}. "
            "Set MSRUN_CACHE_DIR to a folder that can be written."
        ) from error
    try:
        for number, (name, count) in enumerate(counts.items()):
            _generate_split(temporary, name, count, canvas, [seed, number])
        temporary.chmod(0o755)  # mkdtemp shuts everybody else out
        os.rename(temporary, root)
    except OSError as error:
        if not root.is_dir():
            raise DataError(f"the shapes dataset cannot be written to {root}: {error.strerror}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _generate_split(root: Path, name: str, count: int, canvas: int, seed: list[int]) -> None:
    """`count` JPEGs below images/<name> and annotations/instances_<name>.json."""
    folder = root / "images" / name
    folder.mkdir(parents=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index in range(count):
        picture, boxes_xywh, labels = draw_picture(np.random.default_rng([*seed, index]), canvas)
        file_name = f"{index:06d}.jpg"
        _, encoded = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
        (folder / file_name).write_bytes(encoded.tobytes())
        images.append({"id": index, "file_name": file_name, "width": canvas, "height": canvas})
        for box, label in zip(boxes_xywh.tolist(), labels.tolist(), strict=True):
            annotation = {"id": len(annotations) + 1, "image_id": index, "category_id": label + 1, "bbox": box}
            annotations.append({**annotation, "area": box[2] * box[3], "iscrowd": 0})
    categories = [{"id": index, "name": label} for index, label in enumerate(CLASS_NAMES, 1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations").mkdir(exist_ok=True)
    (root / "annotations" / f"instances_{name}.json").write_text(json.dumps(content), encoding="utf-8")
