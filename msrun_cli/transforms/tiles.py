"""Pictures that are not drawn yet: what lies where on a canvas, so that one resize brings each to its last size."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np


@dataclass(frozen=True, slots=True)
class Tile:
    """A picture, stretched over the rectangle [left, left + width) x [top, top + height) of a canvas.

    image: uint8 (h, w, 3) RGB, of any size
    left, top, width, height: whole pixels of the canvas; parts beyond the canvas are cut off
    """

    image: np.ndarray
    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """A canvas of width x height pixels of grey level `fill` with tiles that do not overlap."""

    width: int
    height: int
    fill: int
    tiles: tuple[Tile, ...]

    def draw(self, out: np.ndarray | None = None) -> np.ndarray:
        """The canvas, uint8 (height, width, 3), in `out` where that has its shape and no tile lies there.

        A single tile that is the canvas already is not copied: the very same array, which may be read-only.
        """
        if self._is_picture():
            return self.tiles[0].image
        canvas = self._blank(self.height, self.width, out, self.fill)
        for tile in self.tiles:
            x1, x2 = max(tile.left, 0), min(tile.left + tile.width, self.width)
            y1, y2 = max(tile.top, 0), min(tile.top + tile.height, self.height)
            if x1 >= x2 or y1 >= y2:
                continue
            place = canvas[y1:y2, x1:x2]
            size = (tile.width, tile.height)
            if tile.image.shape[:2] == (tile.height, tile.width):
                place[...] = tile.image[y1 - tile.top : y2 - tile.top, x1 - tile.left : x2 - tile.left]
            elif place.shape[:2] == (tile.height, tile.width):
                cv2.resize(tile.image, size, dst=place)
            else:
                whole = cv2.resize(tile.image, size)
                place[...] = whole[y1 - tile.top : y2 - tile.top, x1 - tile.left : x2 - tile.left]
        return canvas

    def cut(self, left: int, top: int, right: int, bottom: int) -> Tiles:
        """The part [left, right) x [top, bottom) of the canvas, with the same pixels when it is drawn."""
        moved = tuple(replace(tile, left=tile.left - left, top=tile.top - top) for tile in self.tiles)
        return Tiles(right - left, bottom - top, self.fill, moved)

    def draw_view(
        self,
        scale: tuple[float, float],
        shift: tuple[float, float],
        size: int,
        outside: int,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """The view (size, size, 3) of the canvas: x_view = x_canvas * scale[0] + shift[0], likewise y; scale > 0.

        outside: grey level beyond the canvas
        Each tile is resized once, from its own pixels. The edges of tiles are rounded to whole pixels of the view, both
        sides of an edge alike, so there are no seams; inside a tile a pixel is at most half a pixel off.
        """
        view = self._blank(size, size, out, outside)
        if outside != self.fill:
            left, right = (_pixel(x * scale[0] + shift[0], size) for x in (0, self.width))
            top, bottom = (_pixel(y * scale[1] + shift[1], size) for y in (0, self.height))
            view[top:bottom, left:right] = self.fill
        for tile in self.tiles:
            across = _Span.of(tile.left, tile.width, self.width, tile.image.shape[1], scale[0], shift[0], size)
            down = _Span.of(tile.top, tile.height, self.height, tile.image.shape[0], scale[1], shift[1], size)
            if across is not None and down is not None:
                _draw_part(view, tile, across, down)
        return view

    def _is_picture(self) -> bool:
        if len(self.tiles) != 1:
            return False
        (tile,) = self.tiles
        placed = (tile.left, tile.top, tile.width, tile.height)
        return placed == (0, 0, self.width, self.height) and tile.image.shape[:2] == (self.height, self.width)

    def _blank(self, height: int, width: int, out: np.ndarray | None, fill: int) -> np.ndarray:
        usable = out is not None and out.shape == (height, width, 3)
        if not usable or any(np.may_share_memory(out, tile.image) for tile in self.tiles):
            out = np.empty((height, width, 3), np.uint8)
        out[...] = fill
        return out


@dataclass(frozen=True, slots=True)
class _Span:
    """Along one axis: pixels [first, last) of the view show pixels [source_first, source_last) of the picture, which
    cover [drawn_first, drawn_last) of the view when they are drawn whole."""

    first: int
    last: int
    drawn_first: int
    drawn_last: int
    source_first: int
    source_last: int

    @classmethod
    def of(
        cls, start: int, length: int, canvas: int, pixels: int, scale: float, shift: float, size: int
    ) -> _Span | None:
        """None where the tile is outside the view."""
        first = _pixel(max(start, 0) * scale + shift, size)
        last = _pixel(min(start + length, canvas) * scale + shift, size)
        if first >= last:
            return None
        origin, step = start * scale + shift, length * scale / pixels  # step: pixels of the view per pixel of the tile
        begin, end = (first - origin) / step, (last - origin) / step
        if step <= 1:
            # Many pixels of the picture for one of the view: rounding them is the smaller error.
            source_first = min(max(round(begin), 0), pixels - 1)
            source_last = min(max(round(end), source_first + 1), pixels)
            return cls(first, last, first, last, source_first, source_last)
        # One pixel more on each side, since interpolation looks at neighbours.
        source_first = min(max(int(begin) - 1, 0), pixels - 1)
        source_last = min(max(int(end) + 2, source_first + 1), pixels)
        drawn_first = min(round(origin + source_first * step), first)
        drawn_last = max(round(origin + source_last * step), last)
        return cls(first, last, drawn_first, drawn_last, source_first, source_last)


def _pixel(position: float, size: int) -> int:
    """The nearest edge between pixels, inside the view."""
    return round(min(max(position, 0.0), size))


def _draw_part(view: np.ndarray, tile: Tile, across: _Span, down: _Span) -> None:
    place = view[down.first : down.last, across.first : across.last]
    part = tile.image[down.source_first : down.source_last, across.source_first : across.source_last]
    width, height = across.drawn_last - across.drawn_first, down.drawn_last - down.drawn_first
    if place.shape[:2] == (height, width):
        cv2.resize(part, (width, height), dst=place)
        return
    drawn = cv2.resize(part, (width, height))
    top, left = down.first - down.drawn_first, across.first - across.drawn_first
    place[...] = drawn[top : top + place.shape[0], left : left + place.shape[1]]
