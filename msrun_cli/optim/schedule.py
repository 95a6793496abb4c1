"""Learning rate and momentum as a function of the number of updates done, computed on the device.

A cell and not a table of values: a table would become a parameter of the checkpoint and tie it to one number of epochs.
"""

from __future__ import annotations

import math

import mindspore as ms
from mindspore import Tensor, nn, ops

DECAYS = ("linear", "cosine")


class WarmupDecay(nn.Cell):
    """construct(updates int32 ()) -> (lr, bias_lr, momentum), float32 scalars.

    After warm-up the rate falls from `lr` to `lr * final_factor`, linearly or along half a cosine over `total_updates`.
    In warm-up (YOLOv5): weights rise from 0 and biases fall from `warmup_bias_lr` to the decayed rate, the
    momentum rises
    from `warmup_momentum` to `momentum`, all linearly in updates.
    The decay goes down in steps of `updates_per_step` updates: 1, or those of an epoch (YOLOv5); warm-up is smooth.
    """

    def __init__(
        self,
        lr: float,
        momentum: float,
        total_updates: int,
        warmup_updates: int,
        decay: str = "linear",
        final_factor: float = 0.01,
        warmup_bias_lr: float = 0.1,
        warmup_momentum: float = 0.8,
        updates_per_step: float = 1.0,
    ) -> None:
        super().__init__()
        self.lr, self.momentum = lr, momentum
        self.total = float(max(total_updates, 1))
        self.warmup = float(warmup_updates)
        self.updates_per_step = float(updates_per_step)
        self.cosine = decay == "cosine"
        self.final_factor = final_factor
        self.warmup_bias_lr, self.warmup_momentum = warmup_bias_lr, warmup_momentum
        self.one = Tensor(1.0, ms.float32)

    def construct(self, updates):
        done = updates.astype("float32")
        stepped = ops.floor(done / self.updates_per_step) * self.updates_per_step
        progress = ops.minimum(stepped / self.total, self.one)
        if self.cosine:
            remaining = (1.0 + ops.cos(progress * math.pi)) * 0.5
        else:
            remaining = 1.0 - progress
        lr = self.lr * (self.final_factor + (1.0 - self.final_factor) * remaining)
        if self.warmup == 0.0:
            return lr, lr, self.one * self.momentum
        warm = ops.minimum(done / self.warmup, self.one)
        bias_lr = self.warmup_bias_lr + (lr - self.warmup_bias_lr) * warm
        momentum = self.warmup_momentum + (self.momentum - self.warmup_momentum) * warm
        return lr * warm, bias_lr, momentum
