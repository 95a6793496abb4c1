"""Pictures that are not drawn yet: what lies where on a canvas, so that only what is seen of them is drawn."""

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
        """The part [left, right) x [top, bottom), within the canvas, with the same pixels when it is drawn."""
        moved = tuple(replace(tile, left=tile.left - left, top=tile.top - top) for tile in self.tiles)
        return Tiles(right - left, bottom - top, self.fill, moved)

    def draw_square(self, left: int, top: int, side: int, outside: int, out: np.ndarray | None = None) -> np.ndarray:
        """[left, left + side) x [top, top + side) of the canvas, uint8 (side, side, 3), in `out` as `draw` does.

        outside: grey level beyond the canvas, where no tile is shown either
        """
        x1, x2 = max(left, 0), min(left + side, self.width)
        y1, y2 = max(top, 0), min(top + side, self.height)
        if (x2 - x1, y2 - y1) == (side, side):
            return self.cut(x1, y1, x2, y2).draw(out)
        square = self._blank(side, side, out, outside)
        if x1 < x2 and y1 < y2:
            place = square[y1 - top : y2 - top, x1 - left : x2 - left]
            drawn = self.cut(x1, y1, x2, y2).draw(place)
            if drawn is not place:
                place[...] = drawn
        return square

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
