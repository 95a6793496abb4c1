"""Learning rate and momentum as a function of the number of updates done, computed on the device.

Cells and not tables of values: a table would become a parameter of the checkpoint and tie it to one number of epochs.
A schedule's construct(updates int32 ()) gives (lr, bias_lr, momentum), float32 scalars.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

DECAYS = ("linear", "cosine", "step")


class WarmupDecay(nn.Cell):
    """Warm-up, then decay.

    After warm-up the rate falls from `lr` to `lr * final_factor`, linearly or along half a cosine over `total_updates`,
    or it is multiplied by `gamma` at each of the `milestones` (decay "step").
    In warm-up weights rise from 0 and biases go from `warmup_bias_lr` to the decayed rate, the momentum from
    `warmup_momentum` to `momentum`, all linearly in updates (YOLOv5). None: biases rise like weights (Goyal et al.
    2017), the momentum stays.
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
        warmup_bias_lr: float | None = 0.1,
        warmup_momentum: float | None = 0.8,
        updates_per_step: float = 1.0,
        milestones: Sequence[float] = (),
        gamma: float = 0.1,
    ) -> None:
        super().__init__()
        self.lr, self.momentum = lr, momentum
        self.total = float(max(total_updates, 1))
        self.warmup = float(warmup_updates)
        self.updates_per_step = float(updates_per_step)
        self.decay = decay
        self.final_factor = final_factor
        self.own_bias_lr = warmup_bias_lr is not None
        self.warmup_bias_lr = 0.0 if warmup_bias_lr is None else warmup_bias_lr
        self.warmup_momentum = momentum if warmup_momentum is None else warmup_momentum
        self.milestones = Tensor(np.array([*milestones, math.inf], np.float32))  # never empty
        self.gamma = gamma
        self.one = Tensor(1.0, ms.float32)

    def construct(self, updates):
        done = updates.astype("float32")
        lr = self._decayed(done)
        if self.warmup == 0.0:
            return lr, lr, self.one * self.momentum
        warm = ops.minimum(done / self.warmup, self.one)
        momentum = self.warmup_momentum + (self.momentum - self.warmup_momentum) * warm
        bias_lr = lr * warm
        if self.own_bias_lr:
            bias_lr = self.warmup_bias_lr + (lr - self.warmup_bias_lr) * warm
        return lr * warm, bias_lr, momentum

    def _decayed(self, done):
        if self.decay == "step":
            passed = (self.milestones <= done).astype("float32").sum()
            return self.lr * ops.pow(self.one * self.gamma, passed)
        stepped = ops.floor(done / self.updates_per_step) * self.updates_per_step
        progress = ops.minimum(stepped / self.total, self.one)
        remaining = 1.0 - progress
        if self.decay == "cosine":
            remaining = (1.0 + ops.cos(progress * math.pi)) * 0.5
        return self.lr * (self.final_factor + (1.0 - self.final_factor) * remaining)


class OneCycle(nn.Cell):
    """One cycle (Smith and Topin 2017): half a cosine up from `lr * start_factor` to `lr` over `warmup_updates`, half a
    cosine down to `lr * final_factor` over the rest. The momentum goes the other way: from `warmup_momentum` down to
    `momentum` and back up; None = it stays at `momentum`.
    """

    def __init__(
        self,
        lr: float,
        momentum: float,
        total_updates: int,
        warmup_updates: int,
        start_factor: float = 0.04,
        final_factor: float = 0.0001,
        warmup_momentum: float | None = 0.95,
    ) -> None:
        super().__init__()
        self.lr, self.momentum = lr, momentum
        self.high_momentum = momentum if warmup_momentum is None else warmup_momentum
        self.rise = float(max(warmup_updates, 1))
        self.fall = float(max(total_updates - warmup_updates, 1))
        self.start_factor, self.final_factor = start_factor, final_factor
        self.one = Tensor(1.0, ms.float32)

    def construct(self, updates):
        done = updates.astype("float32")
        rising = 0.5 * (1.0 - ops.cos(ops.minimum(done / self.rise, self.one) * math.pi))
        fallen = ops.minimum(ops.relu(done - self.rise) / self.fall, self.one)
        falling = 0.5 * (1.0 + ops.cos(fallen * math.pi))
        up = done < self.rise
        height = ops.select(up, rising, falling)  # 0..1
        low = ops.select(up, self.one * self.start_factor, self.one * self.final_factor)
        lr = self.lr * (low + (1.0 - low) * height)
        return lr, lr, self.high_momentum + (self.momentum - self.high_momentum) * height
