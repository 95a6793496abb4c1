"""What the loss reads of a level's map: box and class logits of the candidates, objectness of all cells."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

BOX = 4  # columns of a map: 4 of the box, then objectness, then the classes
CLASSES = 5


class ChosenLogits(nn.Cell):
    """construct(flat, rows, labels, shares) -> (box logits (K, 4), objectness logits (N,), class loss ()).

    flat float32 (N, 5 + C): a map; rows int32 (K,): row of each candidate; labels int32 (K,), 0..C-1; shares
    float32 (K,): weight of its class loss, the mean over its C binary cross entropies. Without gradient for rows,
    labels and shares.

    The gradient of all three is gathered into that of the map at once. Left to itself it is four maps that are mostly
    zero and their sum.

    Args:
        num_classes: C; with one class there is no class loss.
        label_smoothing: s, 0..1: targets become y * (1 - s) + s / 2.
    """

    def __init__(self, num_classes: int, label_smoothing: float) -> None:
        super().__init__()
        self.classes = num_classes if num_classes > 1 else 0
        table = np.zeros((num_classes, CLASSES + num_classes), np.float32)
        table[:, CLASSES:] = np.eye(num_classes) * (1.0 - label_smoothing) + 0.5 * label_smoothing
        self.targets = Tensor(table)  # (C, 5 + C): targets of each class
        self.class_targets = Tensor(table[:, CLASSES:].copy())
        self.class_columns = Tensor((np.arange(table.shape[1]) >= CLASSES).astype(np.float32).reshape(1, -1))
        self.box_columns = Tensor(np.eye(BOX, table.shape[1], dtype=np.float32))
        self.objectness_column = Tensor(np.eye(1, table.shape[1], BOX, dtype=np.float32))
        # As a product of matrices a CPU multiplies a column by a row several times as fast; an NPU would round it.
        self.by_products = ms.get_context("device_target") == "CPU"

    def construct(self, flat, rows, labels, shares):
        chosen = ops.gather(flat, rows, 0)  # (K, 5 + C)
        loss = ops.zeros((), ms.float32)
        if self.classes > 0:
            logits = chosen[:, CLASSES:]
            # binary cross entropy: max(x, 0) + log(1 + exp(-|x|)) - x y, which never overflows
            rest = ops.relu(logits) + ops.log1p(ops.exp(-ops.abs(logits)))
            per_row = (rest - logits * ops.gather(self.class_targets, labels, 0)).sum(axis=1)
            loss = (per_row * shares).sum() / self.classes
        return chosen[:, :BOX], flat[:, BOX], loss

    def bprop(self, flat, rows, labels, shares, out, dout):
        box, objectness, scale = dout
        gradient = self._widened(box)
        if self.classes > 0:
            per_class = ops.sigmoid(ops.gather(flat, rows, 0)) - ops.gather(self.targets, labels, 0)
            factors = self._outer(shares * (scale / self.classes), self.class_columns)
            gradient = gradient + per_class * factors
        base = self._outer(objectness, self.objectness_column)
        whole = ops.tensor_scatter_add(base, rows.reshape(-1, 1), gradient)
        return whole, ops.zeros_like(rows), ops.zeros_like(labels), ops.zeros_like(shares)

    def _outer(self, column, row):
        """(K,), (1, N) -> (K, N)."""
        column = column.reshape(-1, 1)
        if self.by_products:
            return ops.matmul(column, row)
        return column * row

    def _widened(self, box):
        """(K, 4) -> (K, 5 + C), zero behind the box."""
        if self.by_products:
            return ops.matmul(box, self.box_columns)
        return ops.concat((box, ops.zeros((box.shape[0], self.box_columns.shape[1] - BOX), ms.float32)), 1)
