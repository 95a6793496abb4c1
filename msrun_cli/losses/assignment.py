"""Which anchors and cells of the levels answer for which boxes: the matching of YOLOv5 (release 6/7) with fixed shapes.

An anchor matches a box when neither side differs by more than a ratio; the box is then also given to the neighbouring
cells whose centre is nearer than half a cell: along each axis the lower or the upper one.
"""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

EPSILON = 1e-7
SLOTS = 3  # the own cell, the nearer neighbour along x, the nearer one along y
SLOT_AXES = np.array([[0, 1, 0], [0, 0, 1]], np.float32).reshape(2, 1, SLOTS, 1)
ORDERS = 5  # own, left, upper, right, lower: where several candidates meet in one cell the last one wins


class Assignment(nn.Cell):
    """construct(maps, targets) -> (rows, weights, order, centers, box_sizes, anchor_sizes, labels).

    maps: of each of the L levels (B, A, H, W, ...), of which only the shape is used; targets float32 (B, M, 5) as
    [class, cx, cy, w, h], class -1 = padding. There are K = 3 * A * B * M candidates a level, in the order (slot,
    anchor, target).

    rows int32 (L, K): row in the level's map flattened to (B * A * H * W, ...); weights float32 (L, K): 0 where nothing
    matched, else 1, or more where a box on the very border of cells is given to one cell more than once; order int32
    (L, K): all different, the greatest wins its cell; centers, box_sizes, anchor_sizes float32 (2, L * K): x and y in
    cells, centres from the corner of the candidate's cell; labels int32 (K,): class, 0 for padding.

    Coordinates are the first axis everywhere: cutting columns out of (K, 2) is slow on a CPU.
    """

    def __init__(self, anchors_pixels, strides: tuple[int, ...], anchor_threshold: float) -> None:
        super().__init__()
        self.anchor_threshold = anchor_threshold
        in_cells = [np.array(level, np.float32) / stride for level, stride in zip(anchors_pixels, strides, strict=True)]
        self.anchors = Tensor(np.stack(in_cells).transpose(2, 0, 1).copy())  # (2, L, A)
        self.slot_axes = Tensor(SLOT_AXES)

    def construct(self, maps, targets):
        flat = targets.reshape(-1, 5).transpose(1, 0)  # (5, T)
        # a box without area has no shape to compare with an anchor; the readers drop such boxes, augmentation may not
        real = ops.logical_and(flat[0] >= 0, ops.logical_and(flat[3] > 0, flat[4] > 0))
        grids = Tensor(np.array([[level.shape[3] for level in maps], [level.shape[2] for level in maps]], np.float32))
        grids = grids.expand_dims(2)  # (2, L, 1)
        xy = flat[1:3].expand_dims(1) * grids  # (2, L, T)
        wh = flat[3:5].expand_dims(1) * grids
        wh = ops.select(real.reshape(1, 1, -1).broadcast_to(wh.shape), wh, ops.ones_like(wh))
        cells, given, order = self._slots(xy, grids)
        weights = given.expand_dims(2) * self._matches(wh, real).expand_dims(1)  # (L, S, A, T)
        shape = weights.shape
        centers = (xy.expand_dims(2) - cells).expand_dims(3).broadcast_to((2, *shape)).reshape(2, -1)
        box_sizes = wh.reshape(2, shape[0], 1, 1, -1).broadcast_to((2, *shape)).reshape(2, -1)
        anchor_sizes = self.anchors.reshape(2, shape[0], 1, -1, 1).broadcast_to((2, *shape)).reshape(2, -1)
        labels = ops.maximum(flat[0].astype("int32"), Tensor(0, ms.int32))
        labels = labels.reshape(1, -1).broadcast_to((shape[1] * shape[2], shape[3])).reshape(-1)
        rows, order = self._rows(maps, cells, shape), _numbered(order, shape)
        return rows, weights.reshape(shape[0], -1), order, centers, box_sizes, anchor_sizes, labels

    def _matches(self, wh, real):
        """float32 (L, A, T): 1 where the anchor is like the box, 0 elsewhere and for padding."""
        ratio = ops.maximum(wh, EPSILON).expand_dims(2) / self.anchors.expand_dims(3)  # (2, L, A, T)
        worst = ops.maximum(ratio, 1.0 / ratio).max(axis=0)
        return ops.logical_and(worst < self.anchor_threshold, real.reshape(1, 1, -1)).astype("float32")

    def _slots(self, xy, grids):
        """cells (2, L, S, T), how often each is given (L, S, T), and its place among the ORDERS, all float32.

        A box on the border of two cells is near both neighbours. The upper one is then its own cell, which counts
        twice.
        """
        mirrored = grids - xy
        low = ops.logical_and(xy - ops.floor(xy) < 0.5, xy > 1.0).astype("float32")  # (2, L, T)
        high = ops.logical_and(mirrored - ops.floor(mirrored) < 0.5, mirrored > 1.0).astype("float32")
        both = low * high
        own = ops.floor(xy)
        moved = ops.floor(xy - 0.5 * (low - high + both))
        cells = own.expand_dims(2) + (moved - own).expand_dims(2) * self.slot_axes
        cells = ops.minimum(ops.maximum(cells, Tensor(0.0, ms.float32)), grids.expand_dims(2) - 1.0)
        either = ops.maximum(low, high)
        given = ops.stack((1.0 + both[0] + both[1], either[0], either[1]), 1)
        order = ops.stack((ops.maximum(3.0 * both[0], 4.0 * both[1]), 3.0 - 2.0 * low[0], 4.0 - 2.0 * low[1]), 1)
        return cells, given, order

    def _rows(self, maps, cells, shape):
        _, _, anchors, total = shape
        batch = maps[0].shape[0]
        first = np.repeat(np.arange(batch), total // batch) * anchors + np.arange(anchors).reshape(-1, 1)  # (A, T)
        areas = np.array([level.shape[2] * level.shape[3] for level in maps]).reshape(-1, 1, 1)
        widths = np.array([level.shape[3] for level in maps], np.int32).reshape(-1, 1, 1)
        place = cells.astype("int32")
        inner = place[1] * Tensor(widths) + place[0]  # (L, S, T)
        rows = inner.expand_dims(2) + Tensor((areas * first).astype(np.int32)).expand_dims(1)
        return rows.reshape(shape[0], -1)


def _numbered(order, shape):
    """(L, S, T) places among the ORDERS -> int32 (L, K), different for each candidate of all levels."""
    levels, _, anchors, total = shape
    inner = np.arange(anchors * total).reshape(1, 1, anchors, total)
    base = np.arange(levels).reshape(-1, 1, 1, 1) * (ORDERS * anchors * total) + inner
    numbers = (order.astype("int32") * (anchors * total)).expand_dims(2) + Tensor(base.astype(np.int32))
    return numbers.reshape(levels, -1)
