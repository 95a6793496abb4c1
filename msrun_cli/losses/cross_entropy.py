"""Losses of a classifier on logits (B, C), always computed in float32.

Input contract: `labels` int32 (B,), class index 0..C-1, or float32 (B, C): class probabilities (mixup, cutmix), or 0/1
for each class (several classes in one picture).
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from msrun_cli.common.errors import ConfigError

TINY = 1e-12  # instead of a sum of weights that is zero


class CrossEntropy(nn.Cell):
    """construct(logits, labels) -> (loss, terms): softmax cross entropy, terms float32 (1,) holds the loss.

    With q the target probabilities, smoothed to q * (1 - s) + s / C (Szegedy et al. 2016, section 7), and w the weights
    of the classes: loss = sum_i,c -w_c q_ic log p_ic / N, where N is the sum of the weights of the batch's labels (with
    class probabilities: the batch size). A batch whose labels all have the weight 0 gives 0.

    Args:
        num_classes: C, at least 1.
        label_smoothing: s, 0..1.
        class_weights: C numbers >= 0; None = all 1.

    Raises:
        ConfigError: a value out of range, or another number of weights than classes.
    """

    term_names = ("cross_entropy",)

    def __init__(
        self, num_classes: int, label_smoothing: float = 0.0, class_weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        _check_smoothing(label_smoothing)
        self.num_classes, self.smoothing = num_classes, label_smoothing
        self.weighted = class_weights is not None
        self.weights = _class_tensor("class_weights", class_weights, num_classes)

    def construct(self, logits, labels):
        logits = logits.astype("float32")
        shares = probabilities(labels, self.num_classes)
        smooth = shares * (1.0 - self.smoothing) + self.smoothing / self.num_classes
        losses = -(smooth * log_softmax(logits) * self.weights).sum(axis=1)
        count = 1.0 * logits.shape[0]
        if self.weighted and labels.ndim == 1:
            count = ops.maximum((shares * self.weights).sum(), Tensor(TINY, ms.float32))
        loss = losses.sum() / count
        return loss, loss.reshape(1)


class BinaryCrossEntropy(nn.Cell):
    """construct(logits, labels) -> (loss, terms): each class is a yes or no of its own; the mean over all of them.

    Args:
        num_classes: C, at least 1.
        label_smoothing: s, 0..1: targets become y * (1 - s) + s / 2.
        positive_weights: C factors >= 0 on the loss where the target is 1; None = all 1.

    Raises:
        ConfigError: a value out of range, or another number of weights than classes.
    """

    term_names = ("bce",)

    def __init__(
        self, num_classes: int, label_smoothing: float = 0.0, positive_weights: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        _check_smoothing(label_smoothing)
        self.num_classes, self.smoothing = num_classes, label_smoothing
        self.weights = _class_tensor("positive_weights", positive_weights, num_classes)

    def construct(self, logits, labels):
        logits = logits.astype("float32")
        targets = probabilities(labels, self.num_classes) * (1.0 - self.smoothing) + self.smoothing / 2
        # log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|)), which never overflows
        rest = ops.log1p(ops.exp(-ops.abs(logits)))
        positive = ops.minimum(logits, ops.zeros_like(logits)) - rest
        negative = -ops.maximum(logits, ops.zeros_like(logits)) - rest
        loss = -(targets * positive * self.weights + (1.0 - targets) * negative).mean()
        return loss, loss.reshape(1)


def probabilities(labels, num_classes: int):
    """float32 (B, C) from class indices (B,) or from probabilities."""
    if labels.ndim == 2:
        return labels.astype("float32")
    classes = Tensor(np.arange(num_classes, dtype=np.int32).reshape(1, -1))
    return (labels.astype("int32").expand_dims(1) == classes).astype("float32")


def log_softmax(logits):
    """log p over axis 1. The largest logit is taken off first, so that exp never overflows and the sum is at least 1.

    `log` on a CPU is rounded otherwise in the middle of a vector than at its end, and how a vector is cut for the
    threads is tried anew in each process; `log1p` is rounded in one way, and taking 1 off the sum is exact.
    """
    shifted = logits - ops.stop_gradient(logits.max(axis=1, keepdims=True))
    return shifted - ops.log1p(ops.exp(shifted).sum(axis=1, keepdims=True) - 1.0)


def _check_smoothing(value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"loss.label_smoothing={value}: must be in 0..1.")


def _class_tensor(key: str, values: Sequence[float] | None, num_classes: int) -> Tensor:
    array = np.ones(num_classes) if values is None else np.array(values, np.float64)
    if array.shape != (num_classes,) or not np.isfinite(array).all() or (array < 0).any():
        raise ConfigError(f"loss.{key} has {array.size} values: it must be {num_classes} numbers >= 0, one per class.")
    return Tensor(array.astype(np.float32).reshape(1, -1))
