"""YOLOv5 loss with fixed shapes, so that it compiles once in graph mode.

Input contract: `targets` float32 (B, M, 5) as [class, cx, cy, w, h] normalised to 0..1, class -1 = padding.
Matching: see `losses.assignment`. Box term: 1 - CIoU (Zheng et al. 2020); objectness target: the IoU itself; classes:
one binary cross entropy each.
"""

from __future__ import annotations

import math

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from msrun_cli.losses.assignment import EPSILON, ORDERS, SLOTS, Assignment
from msrun_cli.losses.chosen_logits import ChosenLogits

LEVEL_BALANCE = (4.0, 1.0, 0.4)  # objectness weight of strides 8, 16, 32


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
        self.batch_factor = batch_factor
        self.assignment = Assignment(anchors_pixels, strides, anchor_threshold)
        self.chosen = ChosenLogits(num_classes, label_smoothing)
        self.counted = _MeanCount(ranks) if ranks > 1 else _OwnCount()
        levels = len(strides)
        self.gain_box = box * 3 / levels
        self.gain_obj = obj * (image_size / 640) ** 2 * 3 / levels
        self.gain_cls = cls * num_classes / 80 * 3 / levels
        self.balance = LEVEL_BALANCE
        self.bce = ops.BCEWithLogitsLoss(reduction="sum")

    def construct(self, maps, targets):
        rows, weights, order, centers, box_sizes, anchor_sizes, labels = self.assignment(maps, targets)
        shares = weights / self.counted(weights.sum(axis=1)).expand_dims(1)  # each level is a mean over its candidates
        box_logits, obj_logits = (), ()
        cls = ops.zeros((), ms.float32)
        for index in range(len(maps)):
            flat = maps[index].astype("float32").reshape(-1, maps[index].shape[4])
            of_boxes, of_cells, class_sum = self.chosen(flat, rows[index], labels, shares[index])
            box_logits, obj_logits = box_logits + (of_boxes,), obj_logits + (of_cells,)
            cls = cls + class_sum
        scores = ops.sigmoid(ops.concat(box_logits).transpose(1, 0)).reshape(2, 2, -1)  # (center and size, xy, L * K)
        places, sizes = ops.unstack(scores)
        iou = complete_iou(places * 2.0 - 0.5, ops.square(sizes * 2.0) * anchor_sizes, centers, box_sizes)
        box = ((1.0 - iou) * shares.reshape(-1)).sum()
        obj = self._objectness(maps, ops.concat(obj_logits), rows, weights, order, iou)
        terms = ops.stack((box * self.gain_box, obj * self.gain_obj, cls * self.gain_cls))
        return terms.sum() * (targets.shape[0] * self.batch_factor), terms

    def _objectness(self, maps, logits, rows, weights, order, iou):
        """Sum over the levels of balance * mean binary cross entropy of all cells."""
        cells = np.array([math.prod(level.shape[:4]) for level in maps])
        starts = Tensor((np.cumsum(cells) - cells).astype(np.int32).reshape(-1, 1))
        size = int(cells.sum())
        target = objectness_target(
            (rows + starts).reshape(-1), weights.reshape(-1), order.reshape(-1), ops.stop_gradient(iou), size
        )
        # a function, since MindSpore 2.7 does not divide arrays while it compiles
        shares = np.divide(np.array(self.balance[: len(maps)]), cells)
        shares = Tensor(np.repeat(shares, cells).astype(np.float32))
        return self.bce(logits, target, shares, ops.ones_like(logits))


class _OwnCount(nn.Cell):
    """Candidates that matched, float32 (L,), at least 1 a level."""

    def construct(self, count):
        return ops.maximum(count, Tensor(1.0, ms.float32))


class _MeanCount(nn.Cell):
    """The mean over the ranks; together they count at least 1."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.sum = ops.AllReduce()
        self.ranks = ranks

    def construct(self, count):
        together = ops.stop_gradient(self.sum(ops.stop_gradient(count)))
        return ops.maximum(together, Tensor(1.0, ms.float32)) / self.ranks


def objectness_target(rows, weights, order, iou, size: int):
    """Scatter max(iou, 0) of the candidates (K,) to a map (size,), zero elsewhere.

    Where several candidates meet in one cell the one of the greatest `order` wins, on every device: a scatter of the
    maximum is free of races, while a plain scatter of values is not. Candidates of weight 0 go to a spare cell that is
    cut off. `order` holds different numbers in 0..K * 5 / 3 - 1.
    """
    orders = rows.shape[0] * ORDERS // SLOTS
    candidates = ops.arange(rows.shape[0]).astype("int32")
    candidate_of = ops.tensor_scatter_elements(ops.zeros((orders,), ms.int32), order, candidates)
    places = ops.select(weights > 0, rows, ops.full_like(rows, size))
    winner = ops.tensor_scatter_max(ops.full((size + 1,), -1, dtype=ms.int32), places.reshape(-1, 1), order)[:size]
    chosen = ops.gather(candidate_of, ops.maximum(winner, Tensor(0, ms.int32)), 0)
    values = ops.gather(ops.maximum(iou, Tensor(0.0, ms.float32)), chosen, 0)
    return ops.stop_gradient(ops.select(winner >= 0, values, ops.zeros_like(values)))


def complete_iou(center_a, size_a, center_b, size_b):
    """CIoU (Zheng et al. 2020, eq. 9-12) of boxes (2, K) + (2, K) -> (K,); the trade-off factor carries no gradient."""
    low = ops.maximum(center_a - size_a / 2, center_b - size_b / 2)
    high = ops.minimum(center_a + size_a / 2, center_b + size_b / 2)
    overlap = ops.maximum(high - low, Tensor(0.0, ms.float32))
    overlap_x, overlap_y = ops.unstack(overlap)
    (width_a, height_a), (width_b, height_b) = ops.unstack(size_a), ops.unstack(size_b)
    intersection = overlap_x * overlap_y
    union = width_a * height_a + width_b * height_b - intersection + EPSILON
    iou = intersection / union

    hull = ops.maximum(center_a + size_a / 2, center_b + size_b / 2) - ops.minimum(
        center_a - size_a / 2, center_b - size_b / 2
    )
    diagonal = ops.square(hull).sum(axis=0) + EPSILON
    distance = ops.square(center_b - center_a).sum(axis=0)
    angle = ops.atan(width_b / height_b) - ops.atan(width_a / height_a)
    aspect = ops.square(angle) * (4 / math.pi**2)
    trade_off = ops.stop_gradient(aspect / (aspect - iou + (1 + EPSILON)))
    return iou - (distance / diagonal + aspect * trade_off)
