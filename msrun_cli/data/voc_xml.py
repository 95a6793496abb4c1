"""One annotation file in Pascal VOC's XML (http://host.robots.ox.ac.uk/pascal/VOC/).

<bndbox> counts pixels from 1 and includes the last one: xmin=1, xmax=10 covers the first ten pixels, which is 0..10 as
borders. So 1 is taken from xmin and ymin.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat

import numpy as np

from msrun_cli.data.boxes import Tally
from msrun_cli.data.label_files import SampleError

_LARGEST_FILE = 1 << 24  # bytes; a file with a thousand objects has 300 kB
_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True)
class VocAnnotation:
    """boxes_xyxy: float64 (N, 4), borders in pixels from 0; size: (width, height) or None when the file has none."""

    names: list[str]
    boxes_xyxy: np.ndarray
    difficult: np.ndarray
    size: tuple[int, int] | None


def read_xml(path: str, tally: Tally) -> VocAnnotation:
    """Raises SampleError for what is missing, no XML, or XML with a document type (entities could be anything)."""
    root = _parse(path)
    objects: list[tuple[str, list[float], bool]] = []
    for item in root.findall("object"):
        name, box = _text(item, "name"), item.find("bndbox")
        sides = [_number(_text(box, side)) for side in _SIDES] if box is not None else [None]
        if not name:
            raise SampleError(f"{path}: an object has no name.")
        if any(side is None for side in sides):
            tally.add("objects without a bndbox of four numbers dropped")
            continue
        xmin, ymin, xmax, ymax = (side for side in sides if side is not None)
        objects.append((name, [xmin - 1, ymin - 1, xmax, ymax], _number(_text(item, "difficult")) not in (None, 0.0)))
    # A tuple with NaN in it is never equal to another, which does not matter: it is dropped anyway.
    unique = list({(name, *box, difficult): (name, box, difficult) for name, box, difficult in objects}.values())
    tally.add("repeated objects dropped", len(objects) - len(unique))
    return VocAnnotation(
        [name for name, _, _ in unique],
        np.array([box for _, box, _ in unique], np.float64).reshape(-1, 4),
        np.array([difficult for _, _, difficult in unique], bool),
        _size(root),
    )


def file_name_in(path: str) -> str:
    """The image's <filename>, without folders; "" when there is none."""
    return Path(_text(_parse(path), "filename").replace("\\", "/")).name


def _parse(path: str) -> ET.Element:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise SampleError(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > _LARGEST_FILE:
        raise SampleError(f"{path} has {len(content)} bytes: too many for the annotations of one image.")
    builder, parser = ET.TreeBuilder(), expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise SampleError(f"{path} declares a document type, which annotations do not need. Remove the DOCTYPE.")

    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
        return builder.close()
    except (expat.ExpatError, LookupError, ValueError, AssertionError) as error:  # the second: an unknown encoding
        raise SampleError(f"{path} is not valid XML: {error}.") from error


def _text(element: ET.Element, name: str) -> str:
    return (element.findtext(name) or "").strip()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _size(root: ET.Element) -> tuple[int, int] | None:
    width, height = (_number(_text(root, f"size/{side}")) for side in ("width", "height"))
    if not width or not height or not 0 < width < 2**31 or not 0 < height < 2**31:
        return None
    return int(width), int(height)
