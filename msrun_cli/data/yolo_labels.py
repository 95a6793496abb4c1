"""Label files of the YOLO format: a line per object, coordinates as fractions of the image.

`class cx cy w h` is a box, `class x1 y1 x2 y2 x3 y3 ...` a polygon.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from msrun_cli.common.errors import DataError
from msrun_cli.data.boxes import Tally
from msrun_cli.data.label_files import SampleError

# Beyond this a number is no fraction that was rounded or reaches over the border, but most likely in pixels.
_LARGEST = 2.0


def label_path(image_path: str) -> str:
    """The label file of an image: its last folder named images becomes labels; without one, beside the image."""
    folder, name = os.path.split(image_path)
    parts = folder.split(os.sep)
    if "images" in parts:
        last = len(parts) - 1 - parts[::-1].index("images")
        parts[last] = "labels"
    return os.path.join(os.sep.join(parts), os.path.splitext(name)[0] + ".txt")


def read_labels(path: str, class_names: Sequence[str], tally: Tally) -> tuple[np.ndarray, np.ndarray]:
    """int64 (N,) class indices and float64 (N, 4) boxes x1, y1, x2, y2 as fractions. A missing file has no boxes.

    Repeated lines are dropped and counted. Raises SampleError naming file and line for what is no label, and DataError
    for a class that is not among the names: then these belong to other labels, and leaving out images would hide it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise SampleError(f"{path} cannot be read as text: {error}.") from error
    lines = text.split("\n")
    rows = [
        _row(line.split(), f"{path}, line {number}", class_names)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    unique = list(dict.fromkeys(rows))
    tally.add("repeated label lines dropped", len(rows) - len(unique))
    table = np.array(unique, np.float64).reshape(-1, 5)
    return table[:, 0].astype(np.int64), table[:, 1:]


def _row(fields: list[str], where: str, class_names: Sequence[str]) -> tuple[float, ...]:
    """(class, x1, y1, x2, y2)."""
    try:
        if any("_" in field for field in fields):  # which Python would take
            raise ValueError
        label, *numbers = (float(field) for field in fields)
    except ValueError as error:
        raise SampleError(f"{where}: {' '.join(fields)[:80]!r} holds something that is not a number.") from error
    if not label.is_integer() or not 0 <= label < len(class_names):
        raise DataError(
            f"{where}: class {fields[0]} is not in the {len(class_names)} classes of the data file: "
            f"0..{len(class_names) - 1} are allowed."
        )
    if max(np.abs(np.nan_to_num(numbers, posinf=0, neginf=0)), default=0) > _LARGEST:
        raise SampleError(f"{where}: coordinates must be fractions of the image, 0..1; these look like pixels.")
    if len(numbers) == 4:
        cx, cy, width, height = numbers
        return label, cx - width / 2, cy - height / 2, cx + width / 2, cy + height / 2
    if len(numbers) >= 6 and len(numbers) % 2 == 0:
        if not np.isfinite(numbers).all():
            return (label, *(float("nan") for _ in range(4)))  # different objects, so no line repeats another
        return label, min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])
    raise SampleError(
        f"{where}: {len(fields)} numbers. A box has 5 (class cx cy w h), a polygon a class and at least 3 points."
    )
