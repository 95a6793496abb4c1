"""Random rotation, scale, shear, perspective and shift in one warp."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from msrun_cli.transforms.boxes import clip_boxes
from msrun_cli.transforms.letterbox import letterbox
from msrun_cli.transforms.sample import Context, Sample
from msrun_cli.transforms.tiles import Tile, Tiles

# A warped box is dropped when it is shorter than this on a side (pixels), when less than this part of its area is left
# in view, or when one side is this many times the other: what is left of such an object cannot be recognised.
MIN_SIDE_PX = 2.0
MIN_AREA_LEFT = 0.1
MAX_ASPECT = 100.0

# A view of a square with more than this many times its side is warped: drawing the square first would take more.
MAX_SIDES_SHOWN = 4


class RandomAffine:
    """Warp about the middle of the picture, then cut the view (S, S) out.

    degrees: rotation in [-degrees, degrees]
    translate: shift in [-translate, translate] of the view's side
    scale: factor in [1 - scale, 1 + scale]
    shear: degrees, in [-shear, shear] along each axis
    perspective: 0..0.001, in [-perspective, perspective]
    fill: grey level outside the picture, 0..255
    whole_pixels: where the warp is upright (no rotation, shear or perspective), round it so that the view shows a
        square of whole pixels of the picture, which a resize brings to (S, S) in less than half the time of a warp.
        Boxes follow the rounded warp, so they lie on the pixels as exactly as ever; what was drawn at random changes
        by at most half a pixel of the picture in side and one in place.
    """

    fit = cv2.INTER_LINEAR  # as `letterbox` below shrinks

    def __init__(
        self,
        *,
        degrees: float = 0.0,
        translate: float = 0.1,
        scale: float = 0.5,
        shear: float = 0.0,
        perspective: float = 0.0,
        fill: int = 114,
        whole_pixels: bool = True,
    ) -> None:
        self.degrees, self.translate, self.scale = degrees, translate, scale
        self.shear, self.perspective, self.fill = shear, perspective, fill
        self.whole_pixels = whole_pixels

    def __call__(self, sample: Sample, context: Context) -> Sample:
        size = context.image_size
        if sample.margin == 0 and sample.size != (size, size):
            sample = letterbox(sample, size, self.fill)
        height, width = sample.size
        matrix, scale = self._draw(context.rng, width, height, size)
        square = self._square_shown(matrix, size)
        if square is None:
            image = self._view(sample, matrix, size, context.out)
        else:
            matrix, scale = square.to_view(size), size / square.side
            image = self._resized(sample, square, size, context.out)
        warped = clip_boxes(warp_boxes(sample.boxes_xyxy, matrix), size, size)
        keep = is_recognisable(sample.boxes_xyxy * np.float32(scale), warped)
        return Sample(image, warped[keep], sample.labels[keep])

    def _draw(self, rng: np.random.Generator, width: int, height: int, size: int) -> tuple[np.ndarray, float]:
        """A random 3x3 matrix from pixels of the picture to pixels of the view, and its scale factor."""
        perspective = rng.uniform(-self.perspective, self.perspective, 2)
        angle = math.radians(rng.uniform(-self.degrees, self.degrees))
        scale = rng.uniform(1 - self.scale, 1 + self.scale)
        shear = np.tan(np.radians(rng.uniform(-self.shear, self.shear, 2)))
        shift = rng.uniform(0.5 - self.translate, 0.5 + self.translate, 2) * size
        to_middle = np.array([[1, 0, -width / 2], [0, 1, -height / 2], [0, 0, 1]])
        tilt = np.array([[1, 0, 0], [0, 1, 0], [*perspective, 1]])
        cos, sin = scale * math.cos(angle), scale * math.sin(angle)
        turn = np.array([[cos, sin, 0], [-sin, cos, 0], [0, 0, 1]])
        skew = np.array([[1, shear[0], 0], [shear[1], 1, 0], [0, 0, 1]])
        to_view = np.array([[1, 0, shift[0]], [0, 1, shift[1]], [0, 0, 1]])
        return to_view @ skew @ turn @ tilt @ to_middle, scale

    def _square_shown(self, matrix: np.ndarray, size: int) -> _Square | None:
        """None where a warp has to draw the view."""
        if not self.whole_pixels or not is_upright(matrix):
            return None
        square = _Square.nearest(matrix, size)
        return square if square.side <= MAX_SIDES_SHOWN * size else None

    def _resized(self, sample: Sample, square: _Square, size: int, out: np.ndarray | None) -> np.ndarray:
        tiles = sample.tiles or _as_tile(sample.image, self.fill)
        if square.side == size:
            return tiles.draw_square(square.left, square.top, size, self.fill, out)
        image = tiles.draw_square(square.left, square.top, square.side, self.fill)
        return cv2.resize(image, (size, size), dst=_memory(out, image, size))

    def _view(self, sample: Sample, matrix: np.ndarray, size: int, out: np.ndarray | None) -> np.ndarray:
        if sample.size == (size, size) and np.array_equal(matrix, np.eye(3)):
            return sample.drawn(out)
        if sample.tiles is not None and not self.perspective:
            left, top, right, bottom = _seen(matrix, sample.size, size)
            moved = matrix @ np.array([[1, 0, left], [0, 1, top], [0, 0, 1]])
            return self._warp(sample.tiles.cut(left, top, right, bottom).draw(), moved, size, out)
        return self._warp(sample.image, matrix, size, out)

    def _warp(self, image: np.ndarray, matrix: np.ndarray, size: int, out: np.ndarray | None) -> np.ndarray:
        # OpenCV's coordinates name the middle of a pixel, those of boxes its corner: half a pixel lies between them.
        matrix = _HALF_BACK @ matrix @ _HALF_ON
        out = _memory(out, image, size)
        fill = (self.fill,) * 3
        if self.perspective:
            return cv2.warpPerspective(image, matrix, (size, size), dst=out, borderValue=fill)
        return cv2.warpAffine(image, matrix[:2], (size, size), dst=out, borderValue=fill)


_HALF_ON = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
_HALF_BACK = np.array([[1, 0, -0.5], [0, 1, -0.5], [0, 0, 1]])


@dataclass(frozen=True, slots=True)
class _Square:
    """[left, left + side) x [top, top + side) in whole pixels of a picture, also beyond its edges."""

    left: int
    top: int
    side: int

    @classmethod
    def nearest(cls, matrix: np.ndarray, size: int) -> _Square:
        """What an upright warp shows in a view (size, size), rounded."""
        scale = matrix[0, 0]
        side = max(round(size / scale), 1)
        left, top = (round((size / 2 - shift) / scale - side / 2) for shift in matrix[:2, 2])
        return cls(left, top, side)

    def to_view(self, size: int) -> np.ndarray:
        """The 3x3 matrix from pixels of the picture to those of the view."""
        scale = size / self.side
        return np.array([[scale, 0, -self.left * scale], [0, scale, -self.top * scale], [0, 0, 1]])


def _memory(out: np.ndarray | None, image: np.ndarray, size: int) -> np.ndarray:
    """Where a view (size, size, 3) of `image` can be drawn: `out`, unless the image lies there."""
    if out is None or np.may_share_memory(out, image):
        return np.empty((size, size, 3), np.uint8)
    return out


def _seen(matrix: np.ndarray, canvas: tuple[int, int], size: int) -> tuple[int, int, int, int]:
    """Left, top, right, bottom in whole pixels of the part of a canvas (height, width) that a view (size, size) shows,
    with what interpolation looks at beyond; never empty."""
    corners = np.array([[0, size, 0, size], [0, 0, size, size], [1, 1, 1, 1]])
    xs, ys, _ = np.linalg.inv(matrix) @ corners
    left, right = _between(xs, canvas[1])
    top, bottom = _between(ys, canvas[0])
    return left, top, right, bottom


def _between(places: np.ndarray, length: int) -> tuple[int, int]:
    first = min(max(math.floor(places.min()) - 2, 0), length - 1)
    return first, min(max(math.ceil(places.max()) + 2, first + 1), length)


def is_upright(matrix: np.ndarray) -> bool:
    """Whether the 3x3 matrix only scales, by one factor above 0, and shifts."""
    return bool(
        matrix[0, 1] == matrix[1, 0] == matrix[2, 0] == matrix[2, 1] == 0
        and matrix[2, 2] == 1
        and matrix[0, 0] == matrix[1, 1] > 0
    )


def _as_tile(image: np.ndarray, fill: int) -> Tiles:
    height, width = image.shape[:2]
    return Tiles(width, height, fill, (Tile(image, 0, 0, width, height),))


def warp_boxes(boxes_xyxy: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The upright boxes (N, 4) around the four warped corners of each box."""
    count = len(boxes_xyxy)
    corners = np.ones((count * 4, 3))
    corners[:, :2] = boxes_xyxy[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(count * 4, 2)
    warped = corners @ matrix.T
    points = (warped[:, :2] / warped[:, 2:]).reshape(count, 4, 2)
    return np.concatenate([points.min(axis=1), points.max(axis=1)], axis=1).astype(np.float32)


def is_recognisable(before_xyxy: np.ndarray, after_xyxy: np.ndarray) -> np.ndarray:
    """bool (N,). `before_xyxy` must have the scale of `after_xyxy`, so that only what left the view counts as lost."""
    width_before, height_before = (before_xyxy[:, 2:] - before_xyxy[:, :2]).T
    width, height = (after_xyxy[:, 2:] - after_xyxy[:, :2]).T
    area_left = width * height / np.maximum(width_before * height_before, 1e-9)
    aspect = np.maximum(width / np.maximum(height, 1e-9), height / np.maximum(width, 1e-9))
    return (width > MIN_SIDE_PX) & (height > MIN_SIDE_PX) & (area_left > MIN_AREA_LEFT) & (aspect < MAX_ASPECT)
