"""The same boxes written in COCO's, YOLO's and VOC's format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coco_folders import annotation, image, write_image, write_split

NAMES = ("cat", "dog")
Box = tuple[int, int, int, int, int]  # class index, x1, y1, x2, y2 in pixels


def write_coco(root: Path, boxes: dict[str, Sequence[Box]], size: tuple[int, int] = (64, 32)) -> str:
    images = [image(number, f"{name}.png", *size) for number, name in enumerate(boxes)]
    found = [(number, box) for number, name in enumerate(boxes) for box in boxes[name]]
    annotations = [
        annotation(index, number, [x1, y1, x2 - x1, y2 - y1], (1, 7)[label])
        for index, (number, (label, x1, y1, x2, y2)) in enumerate(found)
    ]
    write_split(root, images, annotations, [(1, "cat"), (7, "dog")], folder="images")
    return str(root)


def write_yolo(root: Path, boxes: dict[str, Sequence[Box]], size: tuple[int, int] = (64, 32)) -> str:
    width, height = size
    for name, rows in boxes.items():
        write_image(root / "images" / f"{name}.png", *size)
        lines = [
            f"{label} {(x1 + x2) / 2 / width!r} {(y1 + y2) / 2 / height!r} {(x2 - x1) / width!r} {(y2 - y1) / height!r}"
            for label, x1, y1, x2, y2 in rows
        ]
        path = root / "labels" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))
    return str(root / "images")


def voc_object(name: str, box: Sequence[object], difficult: int = 0) -> str:
    """box: xmin, ymin, xmax, ymax as VOC counts them, from 1 and inclusive."""
    sides = "".join(
        f"<{side}>{value}</{side}>" for side, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    )
    return f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{sides}</bndbox></object>"


def voc_xml(objects: str, size: tuple[int, int] | None = (64, 32), file_name: str = "") -> str:
    sides = "" if size is None else f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>"
    return f"<annotation><filename>{file_name}</filename>{sides}{objects}</annotation>"


def write_voc(root: Path, boxes: dict[str, Sequence[Box]], size: tuple[int, int] = (64, 32)) -> str:
    for name, rows in boxes.items():
        write_image(root / "JPEGImages" / f"{name}.png", *size)
        objects = "".join(voc_object(NAMES[label], (x1 + 1, y1 + 1, x2, y2)) for label, x1, y1, x2, y2 in rows)
        path = root / "Annotations" / f"{name}.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(voc_xml(objects, size))
    return str(root)
