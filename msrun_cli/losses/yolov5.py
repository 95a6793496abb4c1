"""YOLOv5 loss with fixed shapes, so that it compiles once in graph mode.

Input contract: `targets` float32 (B, M, 5) as [class, cx, cy, w, h] normalised to 0..1, class -1 = padding.
Matching (YOLOv5 release 6/7): an anchor matches a box when neither side differs by more than `anchor_threshold`; the
box is then also given to the neighbouring cells whose centre is nearer than half a cell. Box term: 1 - CIoU (Zheng et
al. 2020); objectness target: the IoU itself; classes: one binary cross entropy each.
"""

from __future__ import annotations

import math

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

LEVEL_BALANCE = (4.0, 1.0, 0.4)  # objectness weight of strides 8, 16, 32
NEIGHBOUR_OFFSETS = (
    (0.0, 0.0),
    (0.5, 0.0),
    (0.0, 0.5),
    (-0.5, 0.0),
    (0.0, -0.5),
)  # own cell, left, upper, right, lower
EPSILON = 1e-7


class YOLOv5Loss(nn.Cell):
    """construct(maps, targets) -> (total, terms).

    `total` is the sum of the weighted terms times the batch size times `batch_factor` (the convention of YOLOv5, on
    which its learning rates rest); `terms` float32 (3,) are the weighted box, objectness and class terms, per image.

    Args:
        num_classes, image_size (pixels), anchors_pixels, strides: of the network.
        box, obj, cls: gains at 3 levels, 640 px and 80 classes; they are scaled to the given size and classes.
        anchor_threshold: largest ratio of box and anchor sides that still matches, > 1.
        label_smoothing: 0..1.
        batch_factor: number of batches whose gradients are averaged into one update (accumulation times ranks).
        ranks: number of processes that share a batch. They ask one another how many candidates matched, so that the
            mean over the ranks is the loss of the whole batch.
    """

    term_names = ("box", "obj", "cls")

    def __init__(
        self,
        num_classes: int,
        image_size: int,
        anchors_pixels,
        strides: tuple[int, ...],
        box: float = 0.05,
        obj: float = 1.0,
        cls: float = 0.5,
        anchor_threshold: float = 4.0,
        label_smoothing: float = 0.0,
        batch_factor: int = 1,
        ranks: int = 1,
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.anchor_threshold = anchor_threshold
        self.batch_factor = batch_factor
        self.counted = _MeanCount(ranks) if ranks > 1 else _OwnCount()
        self.positive, self.negative = 1.0 - 0.5 * label_smoothing, 0.5 * label_smoothing
        levels = len(strides)
        self.gain_box = box * 3 / levels
        self.gain_obj = obj * (image_size / 640) ** 2 * 3 / levels
        self.gain_cls = cls * num_classes / 80 * 3 / levels
        self.balance = LEVEL_BALANCE
        self.anchors = [
            Tensor(np.array(level, np.float32) / stride) for level, stride in zip(anchors_pixels, strides, strict=True)
        ]
        self.offsets = Tensor(np.array(NEIGHBOUR_OFFSETS, np.float32).reshape(-1, 1, 2))
        self.bce = ops.BCEWithLogitsLoss(reduction="none")

    def construct(self, maps, targets):
        batch = targets.shape[0]
        box, obj, cls = 0.0, 0.0, 0.0
        for index in range(len(maps)):
            level_box, level_obj, level_cls = self._level(maps[index].astype("float32"), targets, self.anchors[index])
            box = box + level_box
            obj = obj + level_obj * self.balance[index]
            cls = cls + level_cls
        terms = ops.stack((box * self.gain_box, obj * self.gain_obj, cls * self.gain_cls))
        return terms.sum() * (batch * self.batch_factor), terms

    def _level(self, raw, targets, anchors):
        """One level: raw (B, A, H, W, 5 + C), anchors (A, 2) in cells -> three scalar terms before their gains."""
        outputs = raw.shape[4]
        rows, mask, boxes, sizes = self._assign(raw, targets, anchors)
        flat = raw.reshape(-1, outputs)
        chosen = ops.gather(flat, rows, 0)  # (K, 5 + C)
        count = self.counted(mask.sum())

        scores = ops.sigmoid(chosen[:, 0:4])
        predicted_wh = ops.square(scores[:, 2:4] * 2.0) * sizes
        iou = complete_iou(scores[:, 0:2] * 2.0 - 0.5, predicted_wh, boxes[:, 0:2], boxes[:, 2:4])
        box = ((1.0 - iou) * mask).sum() / count

        target = objectness_target(rows, mask, ops.stop_gradient(iou), flat.shape[0])
        logits = flat[:, 4]
        ones = ops.ones_like(logits)
        obj = self.bce(logits, target, ones, ones).mean()
        if self.num_classes == 1:
            return box, obj, ops.zeros_like(box)

        labels = self._class_targets(boxes[:, 4])
        ones = ops.ones_like(labels)
        per_row = self.bce(chosen[:, 5:], labels, ones, ones).mean(axis=1)
        return box, obj, (per_row * mask).sum() / count

    def _class_targets(self, labels):
        hot = labels.reshape(-1, 1) == ops.arange(self.num_classes).astype("float32").reshape(1, -1)
        return hot.astype("float32") * (self.positive - self.negative) + self.negative

    def _assign(self, raw, targets, anchors):
        """Candidates in the order (neighbour, anchor, target), K = 5 * A * B * M of them.

        Returns rows (K,) into raw flattened to (B * A * H * W, ...), mask (K,) float 0/1, boxes (K, 5) as center within
        the cell, size in cells and class, and the anchor's size (K, 2) in cells.
        """
        batch, num_anchors, height, width, _ = raw.shape
        maximum = targets.shape[1]
        total = batch * maximum
        flat = targets.reshape(total, 5)
        # a box without area has no shape to compare with an anchor; the readers drop such boxes, augmentation may not
        real = ops.logical_and(flat[:, 0] >= 0, ops.logical_and(flat[:, 3] > 0, flat[:, 4] > 0))
        grid = Tensor(np.array([width, height], np.float32))
        xy = flat[:, 1:3] * grid
        wh = ops.select(real.reshape(-1, 1).broadcast_to((total, 2)), flat[:, 3:5] * grid, ops.ones_like(xy))

        ratio = ops.maximum(wh, EPSILON).expand_dims(0) / anchors.expand_dims(1)  # (A, T, 2)
        worst = ops.maximum(ratio, 1.0 / ratio).max(axis=2)
        matched = ops.logical_and(worst < self.anchor_threshold, real.expand_dims(0))  # (A, T)

        mirrored = grid - xy
        near_low = ops.logical_and(xy - ops.floor(xy) < 0.5, xy > 1.0)
        near_high = ops.logical_and(mirrored - ops.floor(mirrored) < 0.5, mirrored > 1.0)
        neighbour = ops.stack((real, near_low[:, 0], near_low[:, 1], near_high[:, 0], near_high[:, 1]))  # (5, T)
        mask = ops.logical_and(neighbour.expand_dims(1), matched.expand_dims(0))  # (5, A, T)

        cells = ops.floor(xy.expand_dims(0) - self.offsets)  # (5, T, 2)
        cells = ops.minimum(ops.maximum(cells, Tensor(0.0, ms.float32)), grid - 1.0)
        inside = xy.expand_dims(0) - cells

        image = Tensor(np.repeat(np.arange(batch), maximum).astype(np.int32).reshape(1, 1, -1))
        anchor = Tensor(np.arange(num_anchors, dtype=np.int32).reshape(1, -1, 1))
        place = cells.astype("int32")
        row = place[:, :, 1] * width + place[:, :, 0]  # (5, T)
        rows = (image * num_anchors + anchor) * (height * width) + row.expand_dims(1)

        shape = (len(NEIGHBOUR_OFFSETS), num_anchors, total)
        described = ops.concat(
            (inside, self._spread(wh, (shape[0], total, 2)), self._spread(flat[:, 0:1], (shape[0], total, 1))), -1
        )
        boxes = ops.broadcast_to(described.expand_dims(1), shape + (5,)).reshape(-1, 5)
        sizes = ops.broadcast_to(anchors.reshape(1, num_anchors, 1, 2), shape + (2,)).reshape(-1, 2)
        return rows.reshape(-1), mask.astype("float32").reshape(-1), boxes, sizes

    def _spread(self, x, shape):
        return ops.broadcast_to(x.expand_dims(0), shape)


class _OwnCount(nn.Cell):
    """Candidates that matched, at least 1."""

    def construct(self, count):
        return ops.maximum(count, Tensor(1.0, ms.float32))


class _MeanCount(nn.Cell):
    """The mean over the ranks; together they count at least 1."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.sum = ops.AllReduce()
        self.ranks = ranks

    def construct(self, count):
        together = ops.stop_gradient(self.sum(ops.stop_gradient(count).reshape(1)))[0]
        return ops.maximum(together, Tensor(1.0, ms.float32)) / self.ranks


def objectness_target(rows, mask, iou, size: int):
    """Scatter max(iou, 0) of the candidates (K,) to a map (size,), zero elsewhere.

    Where several candidates meet in one cell the last one wins, on every device: a scatter of the maximum
    candidate number is free of
    races, while a plain scatter of values is not. Masked candidates go to a spare cell that is cut off.
    """
    number = ops.arange(rows.shape[0]).astype("int32")
    places = ops.select(mask > 0, rows, ops.full_like(rows, size))
    winner = ops.tensor_scatter_max(ops.full((size + 1,), -1, dtype=ms.int32), places.reshape(-1, 1), number)[:size]
    values = ops.gather(ops.maximum(iou, Tensor(0.0, ms.float32)), ops.maximum(winner, Tensor(0, ms.int32)), 0)
    return ops.stop_gradient(ops.select(winner >= 0, values, ops.zeros_like(values)))


def complete_iou(center_a, size_a, center_b, size_b):
    """CIoU (Zheng et al. 2020, eq. 9-12) of boxes (K, 2) + (K, 2) -> (K,); the trade-off factor carries no gradient."""
    low = ops.maximum(center_a - size_a / 2, center_b - size_b / 2)
    high = ops.minimum(center_a + size_a / 2, center_b + size_b / 2)
    overlap = ops.maximum(high - low, Tensor(0.0, ms.float32))
    intersection = overlap[:, 0] * overlap[:, 1]
    union = size_a[:, 0] * size_a[:, 1] + size_b[:, 0] * size_b[:, 1] - intersection + EPSILON
    iou = intersection / union

    hull = ops.maximum(center_a + size_a / 2, center_b + size_b / 2) - ops.minimum(
        center_a - size_a / 2, center_b - size_b / 2
    )
    diagonal = ops.square(hull).sum(axis=1) + EPSILON
    distance = ops.square(center_b - center_a).sum(axis=1)
    angle = ops.atan(size_b[:, 0] / size_b[:, 1]) - ops.atan(size_a[:, 0] / size_a[:, 1])
    aspect = ops.square(angle) * (4 / math.pi**2)
    trade_off = ops.stop_gradient(aspect / (aspect - iou + (1 + EPSILON)))
    return iou - (distance / diagonal + aspect * trade_off)
