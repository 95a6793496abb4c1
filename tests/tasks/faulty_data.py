"""A COCO dataset with one file, box or class of each kind of fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import odd_images
from odd_images import encoded

WIDTH, HEIGHT = 96, 64


def photo(seed: int) -> np.ndarray:
    """A smooth picture; another seed gives a clearly different one."""
    rng = np.random.default_rng(seed)
    return cv2.resize(rng.integers(0, 256, (8, 12, 3), np.uint8), (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)


def jpeg(seed: int, quality: int = 95) -> bytes:
    return cv2.imencode(".jpg", photo(seed), [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def damaged(content: bytes) -> bytes:
    """The second half of the scan is gone, the end marker is there: decodes, and libjpeg complains."""
    return content[: len(content) // 2] + b"\xff\xd9"


def write_faulty(root: Path, missing: bool = False, unknown_category: bool = False) -> Path:
    """Below `root`; file names tell the fault.

    missing: also list a file that does not exist; unknown_category: a label that no reader takes, and a broken link
    """
    good = {f"good {number}.jpg": jpeg(number) for number in range(12)}
    train: dict[str, bytes] = {
        **good,
        "empty.jpg": b"",
        "page.jpg": odd_images.HTML,
        "animated.jpg": odd_images.ANIMATED_GIF,
        "truncated.jpg": jpeg(20)[:-300],
        "truncated.png": encoded(".png", photo(21))[:-500],
        "damaged.jpg": damaged(jpeg(22)),
        "huge.png": odd_images.huge_png(),
        "small.jpg": encoded(".jpg", photo(23)[:48]),
        "a png.jpg": encoded(".png", photo(24)),
        "twin a.jpg": jpeg(25),
        "twin b.jpg": jpeg(25),
        "near a.jpg": jpeg(26),
        "near b.png": encoded(".png", cv2.resize(photo(26), (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)),
        "标注 boxes.jpg": jpeg(27),
        "background.jpg": jpeg(28),
    }
    val = {"val 0.jpg": jpeg(40), "val 1.jpg": jpeg(41), "leaked.jpg": jpeg(0), "leaked nearly.jpg": jpeg(1, 60)}
    box: list[float] = [10, 8, 30, 30]
    boxes = {name: [(box, 1)] for name in train if name != "background.jpg"}
    boxes["标注 boxes.jpg"] = [
        ([10, 10, 1, 1], 1),  # tiny
        ([0, 0, WIDTH, HEIGHT], 1),  # covering
        ([20, 20, 20, 20], 2),
        ([20.2, 20, 20, 20], 2),  # duplicate
        ([50, 20, 20, 20], 1),
        ([50, 20, 20, 20], 2),  # ambiguous
        ([5, 5, 0, 10], 1),  # no area: dropped by the reader
    ]
    if missing:
        boxes["missing.jpg"] = [(box, 1)]
    if unknown_category:
        boxes["good 3.jpg"] = [(box, 99)]
    _write(root, "train", train, boxes)
    _write(root, "val", val, {"val 0.jpg": [(box, 3)], "val 1.jpg": [(box, 1)], "leaked.jpg": [(box, 2)]})
    if unknown_category:
        (root / "images" / "train" / "broken link.jpg").symlink_to("nowhere.jpg")
    return root


def _write(root: Path, split: str, files: dict[str, bytes], boxes: dict[str, list[tuple[list[float], int]]]) -> None:
    folder = root / "images" / split
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    names = list(dict.fromkeys([*files, *boxes]))
    images = [{"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT} for number, name in enumerate(names)]
    annotations: list[dict[str, Any]] = [
        {"id": 0, "image_id": names.index(name), "category_id": category, "bbox": bbox}
        for name, of_image in boxes.items()
        for bbox, category in of_image
    ]
    for number, annotation in enumerate(annotations, 1):
        annotation["id"] = number
    categories = [
        {"id": 1, "name": "cat"},
        {"id": 2, "name": "狗"},
        {"id": 3, "name": "only val"},
        {"id": 4, "name": "never"},
    ]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations").mkdir(exist_ok=True)
    (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(content), encoding="utf-8")
