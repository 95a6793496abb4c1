"""Boxes with labels on images, and images beside each other, drawn with Pillow.

Pillow and not OpenCV, whose text knows ASCII only.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib import font_manager, get_data_path
from PIL import Image, ImageDraw, ImageFont

from msrun_cli.common.files import atomic_path

Colour = tuple[int, int, int]
Rectangle = tuple[float, float, float, float]

# How the names of fonts with Chinese characters begin, the simplified forms first.
_CJK_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "WenQuanYi", "Microsoft YaHei"),
    *("SimHei", "SimSun", "PingFang SC", "Hiragino Sans GB", "Droid Sans Fallback"),
    *("Noto Sans CJK", "Noto Serif CJK", "Source Han Sans", "Source Han Serif", "AR PL UMing", "AR PL UKai"),
)
_FIRST_CJK = 0x2E80  # radicals, kana, ideographs and their punctuation follow
_BACKGROUND: Colour = (245, 245, 245)
_GAP = 6  # pixels between tiles


def fit(image: np.ndarray, smallest: int, largest: int) -> tuple[Image.Image, float]:
    """The image (H, W, 3 uint8 RGB) with its long side brought into smallest..largest pixels, and the factor."""
    height, width = image.shape[:2]
    long_side = max(height, width)
    factor = min(max(long_side, smallest), largest) / long_side
    size = max(1, round(width * factor)), max(1, round(height * factor))
    picture = Image.fromarray(np.ascontiguousarray(image))
    return picture.resize(size, Image.Resampling.BICUBIC) if factor != 1 else picture, factor


def draw_boxes(picture: Image.Image, boxes_xyxy: np.ndarray, labels: np.ndarray, texts: Sequence[str]) -> None:
    """Draw boxes (n, 4) in pixels of `picture` with a text each, in place. Colours follow the labels (class indices).

    The first boxes end up on top, so give the best first.
    """
    pen = ImageDraw.Draw(picture)
    font_size, line_width = (11, 2) if max(picture.size) < 400 else (13, 3)
    order = range(len(boxes_xyxy) - 1, -1, -1)
    for index in order:
        _outline(pen, boxes_xyxy[index], colour_of(int(labels[index])), line_width)
    taken: list[Rectangle] = []
    places = {}
    for index in reversed(order):  # the best boxes choose their label's place first
        size = _text_size(texts[index], font_size)
        places[index] = _free_place(boxes_xyxy[index], size, picture.size, taken)
        taken.append(places[index])
    for index in order:
        _label(pen, places[index], texts[index], colour_of(int(labels[index])), font_size)


def grid(tiles: Sequence[Image.Image], columns: int) -> Image.Image:
    """Tiles in rows of `columns`; each row is as high as its highest tile, each column as wide as its widest."""
    if not tiles:
        return with_title(Image.new("RGB", (_GAP * 20, _GAP), _BACKGROUND), "no images")
    rows = [tiles[start : start + columns] for start in range(0, len(tiles), columns)]
    widths = [max(row[column].width for row in rows if column < len(row)) for column in range(len(rows[0]))]
    heights = [max(tile.height for tile in row) for row in rows]
    size = sum(widths) + _GAP * (len(widths) + 1), sum(heights) + _GAP * (len(heights) + 1)
    canvas = Image.new("RGB", size, _BACKGROUND)
    y = _GAP
    for row, height in zip(rows, heights, strict=True):
        x = _GAP
        for tile, width in zip(row, widths, strict=False):
            canvas.paste(tile, (x, y))
            x += width + _GAP
        y += height + _GAP
    return canvas


def with_title(picture: Image.Image, title: str, font_size: int = 14) -> Image.Image:
    """The picture below a line of text, cut where it is too long."""
    font = font_for(title, font_size)
    while len(title) > 1 and font.getlength(title) > picture.width:
        title = title[:-2] + "…"
    line = font_size + 8
    canvas = Image.new("RGB", (picture.width, picture.height + line), _BACKGROUND)
    canvas.paste(picture, (0, line))
    ImageDraw.Draw(canvas).text((2, line // 2), title, fill=(20, 20, 20), font=font, anchor="lm")
    return canvas


def save(picture: Image.Image, path: str | Path) -> Path:
    """Write the picture atomically; the suffix chooses the format."""
    with atomic_path(path) as temporary:
        picture.save(temporary)
    return Path(path)


def colour_of(label: int) -> Colour:
    """A colour for each class; neighbours differ much in hue (steps of the golden ratio), and white text is legible."""
    hue = (0.02 + label * 0.618034) % 1
    value = (0.88, 0.68)[label // 13 % 2]
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.9, value)
    # green and yellow are far brighter to the eye than the others
    luminance = 0.299 * red + 0.587 * green + 0.114 * blue
    dim = min(1.0, 0.5 / luminance)
    return round(255 * red * dim), round(255 * green * dim), round(255 * blue * dim)


@cache
def font_for(text: str, size: int) -> ImageFont.FreeTypeFont:
    """DejaVu Sans (it comes with matplotlib); a CJK font for text that needs one, if the system has any."""
    path = cjk_font_path() if any(ord(character) >= _FIRST_CJK for character in text) else None
    return ImageFont.truetype(path or Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), size)


@cache
def cjk_font_path() -> str | None:
    """File of the first installed font that has Chinese characters."""
    fonts = font_manager.fontManager.ttflist
    return next((font.fname for name in _CJK_FONTS for font in fonts if font.name.startswith(name)), None)


def _outline(pen: ImageDraw.ImageDraw, box: np.ndarray, colour: Colour, line_width: int) -> None:
    x1, y1, x2, y2 = (float(value) for value in box)
    pen.rectangle((x1, y1, max(x1, x2), max(y1, y2)), outline=colour, width=line_width)


def _text_size(text: str, font_size: int) -> tuple[float, float]:
    return font_for(text, font_size).getlength(text) + 4, font_size + 4


def _free_place(
    box: np.ndarray, size: tuple[float, float], canvas: tuple[int, int], taken: Sequence[Rectangle]
) -> Rectangle:
    """Where the label goes: above the box, else under, inside or beside it, where it hides least of other labels."""
    x1, y1, x2, y2 = (float(value) for value in box)
    width, height = size
    left, right, above = x1, x2 - width, y1 - height
    corners = [(left, above), (left, y2), (left, y1), (right, above), (x2, y1), (left, y2 - height)]
    corners += [(right, y2), (x1 - width, y1), (x2, y2 - height), (x1 - width, y2 - height)]
    places = [_inside(x, y, size, canvas) for x, y in corners]
    return min(places, key=lambda place: sum(_common_area(place, other) for other in taken))


def _inside(x: float, y: float, size: tuple[float, float], canvas: tuple[int, int]) -> Rectangle:
    x = max(0.0, min(x, canvas[0] - size[0]))
    y = max(0.0, min(y, canvas[1] - size[1]))
    return x, y, x + size[0], y + size[1]


def _common_area(a: Rectangle, b: Rectangle) -> float:
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, width) * max(0.0, height)


def _label(pen: ImageDraw.ImageDraw, place: Rectangle, text: str, colour: Colour, font_size: int) -> None:
    pen.rectangle(place, fill=colour)
    middle = (place[1] + place[3]) / 2
    pen.text((place[0] + 2, middle), text, fill=(255, 255, 255), font=font_for(text, font_size), anchor="lm")
