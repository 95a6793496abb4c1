"""Draw one picture of textured shapes on a cluttered background, with the boxes of what can be seen.

The class is told by outline only: colours and textures are drawn from the same distribution for all classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import cv2
import numpy as np

CLASS_NAMES = ("circle", "square", "triangle", "star")

_MAX_OBJECTS = 6
_MIN_VISIBLE = 0.6  # part of a shape's area that neither other shapes nor the border may take
_SMOOTH = 2  # shapes are drawn this many times larger and averaged down: smooth outlines
_TURN = math.radians(30)  # any angle would hide the directions of the edges, the first thing a network learns
_TRIES = 30  # random places tried for an object before it is left out

Rng = np.random.Generator


def draw_picture(rng: Rng, canvas: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A picture, its boxes and their classes.

    uint8 (canvas, canvas, 3) BGR; int64 (N, 4) boxes of the visible parts as x, y, width, height in pixels; int64 (N,)
    class indices; 1 <= N <= 6
    """
    picture = _background(rng, canvas).astype(np.float32)
    count = int(rng.integers(1, _MAX_OBJECTS, endpoint=True))
    owner = np.full((canvas, canvas), -1)  # which object is seen at each pixel
    areas: list[float] = []
    labels: list[int] = []
    for _ in range(count):
        label = int(rng.integers(len(CLASS_NAMES)))
        alpha = _place(rng, canvas, label, count, owner, areas)
        if alpha is None:
            continue
        owner[alpha > 0.5] = len(labels)
        labels.append(label)
        _paint(rng, picture, alpha)
    picture += rng.standard_normal(picture.shape, np.float32) * np.float32(rng.uniform(1, 5))
    boxes = np.array([cv2.boundingRect((owner == index).astype(np.uint8)) for index in range(len(labels))])
    return np.clip(picture, 0, 255).astype(np.uint8), boxes.astype(np.int64), np.array(labels, np.int64)


def _place(rng: Rng, canvas: int, label: int, count: int, owner: np.ndarray, areas: list[float]) -> np.ndarray | None:
    """Coverage float32 (canvas, canvas) in 0..1 of a shape that leaves enough of itself and of all others to be seen;
    its full area is appended to `areas`. None if no such place was found."""
    for _ in range(_TRIES):
        side = canvas * _side(rng, count)
        points = _outline(rng, label) * side / 2
        # The middle stays inside by a third of the side, so that at most a part is cut off by the border.
        middle = rng.uniform(side / 3, canvas - side / 3, 2)
        alpha = _coverage(points + middle, canvas)
        seen = alpha > 0.5
        area = cv2.contourArea(points.astype(np.float32))
        covered = [np.count_nonzero((owner == index) & ~seen) for index in range(len(areas))]
        others_seen = all(left >= _MIN_VISIBLE * full for left, full in zip(covered, areas, strict=True))
        if others_seen and np.count_nonzero(seen) >= _MIN_VISIBLE * area:
            areas.append(area)
            return alpha
    return None


def _side(rng: Rng, count: int) -> float:
    """Side of the shape as a part of the canvas; crowded pictures hold smaller shapes."""
    if rng.random() < 0.1:
        return rng.uniform(0.14, 0.24)
    return rng.uniform(0.24, {1: 0.7, 2: 0.65, 3: 0.58, 4: 0.52}.get(count, 0.46))


def _outline(rng: Rng, label: int) -> np.ndarray:
    """Corners (K, 2) of the shape in [-1, 1], turned by up to 30 degrees and slightly stretched."""
    name = CLASS_NAMES[label]
    corners = {"circle": 60, "square": 4, "triangle": 3, "star": 10}[name]
    upright = math.pi / 4 if name == "square" else -math.pi / 2
    angles = np.arange(corners) * 2 * math.pi / corners + upright + rng.uniform(-_TURN, _TURN)
    radii = np.where(np.arange(corners) % 2, rng.uniform(0.42, 0.5), 1.0) if name == "star" else np.ones(corners)
    points = radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return points * rng.uniform(0.85, 1.0, 2)


def _coverage(points: np.ndarray, canvas: int) -> np.ndarray:
    mask = np.zeros((canvas * _SMOOTH, canvas * _SMOOTH), np.uint8)
    cv2.fillPoly(mask, [np.round(points * _SMOOTH).astype(np.int32)], 255)
    return cv2.resize(mask, (canvas, canvas), interpolation=cv2.INTER_AREA).astype(np.float32) / 255


def _paint(rng: Rng, picture: np.ndarray, alpha: np.ndarray) -> None:
    """Blend a textured shape into the picture, with a soft shadow and sometimes an edge, in place."""
    reach = len(picture) // 12  # of the shadow
    left, top, width, height = cv2.boundingRect((alpha > 0).astype(np.uint8))
    rows = slice(max(0, top - reach), top + height + reach)
    columns = slice(max(0, left - reach), left + width + reach)
    view, alpha = picture[rows, columns], alpha[rows, columns]
    shift = np.float32([[1, 0, reach / 4], [0, 1, reach / 3]])
    shade = cv2.warpAffine(cv2.GaussianBlur(alpha, (0, 0), reach / 4), shift, alpha.shape[::-1])
    view *= 1 - np.float32(rng.uniform(0.2, 0.5)) * shade[..., None]
    patch = max(view.shape[:2])
    texture = TEXTURES[rng.integers(len(TEXTURES))](rng, patch, *_two_colors(rng))
    texture += (_ramp(rng, patch) * np.float32(rng.uniform(-40, 40)))[..., None]
    texture = np.clip(texture[: view.shape[0], : view.shape[1]], 0, 255)
    if rng.random() < 0.4:
        edge = cv2.morphologyEx(alpha, cv2.MORPH_GRADIENT, np.ones((3, 3)))[..., None]
        texture += edge * (np.float32(rng.choice([20, 235])) - texture)
    view += alpha[..., None] * (texture - view)


def _two_colors(rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Strong colours of a texture, float32 BGR 0..255: any hue, and a darker or a neighbouring one."""
    hue, saturation, value = rng.uniform(0, 180), rng.uniform(150, 255), rng.uniform(170, 255)
    other = [(hue + rng.uniform(-25, 25)) % 180, saturation * rng.uniform(0.5, 1), value * rng.uniform(0.45, 1)]
    colors = cv2.cvtColor(np.uint8([[[hue, saturation, value], other]]), cv2.COLOR_HSV2BGR)[0].astype(np.float32)
    return colors[0], colors[1]


def _mix(weight: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """float32 (H, W, 3): `first` where the weight (H, W) is 0, `second` where it is 1."""
    return first + weight[..., None] * (second - first)


def _ramp(rng: Rng, side: int) -> np.ndarray:
    """float32 (side, side) from about -0.7 to 0.7 along a random direction."""
    angle = rng.uniform(0, 2 * math.pi)
    line = np.linspace(-0.5, 0.5, side, dtype=np.float32)
    return line[None, :] * np.float32(math.cos(angle)) + line[:, None] * np.float32(math.sin(angle))


def _clouds(rng: Rng, side: int, cells: int) -> np.ndarray:
    """Smooth noise in 0..1, float32 (side, side), with about `cells` bumps along a side."""
    coarse = rng.random((cells + 1, cells + 1), np.float32)
    return np.clip(cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC), 0, 1)


def _wave(rng: Rng, side: int, periods: float) -> np.ndarray:
    return np.sin(_ramp(rng, side) * np.float32(2 * math.pi * periods))


def _plain(rng: Rng, side: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return _mix(np.zeros((side, side), np.float32), first, second)


def _gradient(rng: Rng, side: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return _mix(_ramp(rng, side) + np.float32(0.5), first, second)


def _stripes(rng: Rng, side: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return _mix(np.clip(0.5 + 2 * _wave(rng, side, rng.uniform(4, 9)), 0, 1), first, second)


def _checks(rng: Rng, side: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    periods = rng.uniform(3, 6)
    return _mix(np.clip(0.5 + 4 * _wave(rng, side, periods) * _wave(rng, side, periods), 0, 1), first, second)


def _dots(rng: Rng, side: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    weight = np.zeros((side, side), np.float32)
    step = max(5.0, side * rng.uniform(0.1, 0.16))
    centres = np.mgrid[0:side:step, 0:side:step].reshape(2, -1).T
    for x, y in np.round(centres + rng.uniform(-0.15, 0.15, centres.shape) * step).astype(int).tolist():
        cv2.circle(weight, (x, y), max(1, round(step * 0.3)), 1.0, cv2.FILLED)
    return _mix(weight, first, second)


def _speckle(rng: Rng, side: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return _mix(np.clip(_clouds(rng, side, max(4, side // 5)) * 1.6 - 0.3, 0, 1), first, second)


def _marble(rng: Rng, side: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return _mix(_clouds(rng, side, int(rng.integers(4, 8))), first, second)


# Each gives float32 (side, side, 3), BGR about 0..255.
TEXTURES: tuple[Callable[[Rng, int, np.ndarray, np.ndarray], np.ndarray], ...] = (
    _plain,
    _gradient,
    _stripes,
    _checks,
    _dots,
    _speckle,
    _marble,
)


def _background(rng: Rng, canvas: int) -> np.ndarray:
    """uint8 (canvas, canvas, 3): clouds of two dull colours, soft blobs, strokes and arcs, no closed outline."""
    grey = rng.uniform(40, 170)
    weight = 0.6 * _clouds(rng, canvas, int(rng.integers(2, 6))) + 0.4 * (_ramp(rng, canvas) + np.float32(0.5))
    picture = _mix(weight, _dull(rng, grey), _dull(rng, grey)).astype(np.uint8)
    for _ in range(rng.integers(0, 4)):
        _blob(rng, picture, _dull(rng, grey))
    for _ in range(rng.integers(1, 7)):
        start, end = rng.integers(0, canvas, (2, 2)).tolist()
        cv2.line(picture, start, end, _dull(rng, grey).tolist(), int(rng.integers(1, 4)), cv2.LINE_AA)
    for _ in range(rng.integers(0, 4)):
        middle, axes = rng.integers(0, canvas, 2).tolist(), rng.integers(canvas // 20, canvas // 3, 2).tolist()
        opening, color = int(rng.integers(0, 360)), _dull(rng, grey).tolist()
        cv2.ellipse(picture, middle, axes, opening, 0, int(rng.integers(60, 200)), color, 1, cv2.LINE_AA)
    return cv2.GaussianBlur(picture, (0, 0), rng.uniform(0.4, 1.0))


def _dull(rng: Rng, grey: float) -> np.ndarray:
    """A colour near `grey` (0..255), float32 BGR. Shapes have strong colours instead, which is what makes them easy to
    find for a network that starts from nothing and has a few minutes."""
    return np.clip(grey + rng.uniform(-45, 45) + rng.uniform(-18, 18, 3), 0, 255).astype(np.float32)


def _blob(rng: Rng, picture: np.ndarray, color: np.ndarray) -> None:
    """A patch without a sharp border, in place."""
    canvas = len(picture)
    mask = np.zeros((canvas, canvas), np.float32)
    middle, axes = rng.integers(0, canvas, 2).tolist(), rng.integers(canvas // 16, canvas // 5, 2).tolist()
    cv2.ellipse(mask, middle, axes, int(rng.integers(0, 180)), 0, 360, 1.0, cv2.FILLED)
    mask = cv2.GaussianBlur(mask, (0, 0), canvas / 20)[..., None]
    picture[:] = (picture + mask * (color - picture)).astype(np.uint8)
