"""Loss scale as a cell: none, fixed or dynamic. The scale lives on the device and needs no host decision."""

from __future__ import annotations

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

TYPES = ("none", "fixed", "dynamic")
LARGEST_SCALE = 2.0**24


class FixedLossScale(nn.Cell):
    """A constant factor on the loss; 1 means none."""

    def __init__(self, value: float = 1.0) -> None:
        super().__init__(auto_prefix=False)
        self.scale = Parameter(Tensor(value, ms.float32), name="loss_scale.scale", requires_grad=False)

    def construct(self, finite):
        """Adjust after a step; a constant scale stays."""
        return True


class DynamicLossScale(nn.Cell):
    """Divides the scale by `factor` after an overflow, multiplies it by `factor` after `window` steps without one.

    The scale stays within 1 .. 2^24.
    """

    def __init__(self, value: float, factor: float = 2.0, window: int = 2000) -> None:
        super().__init__(auto_prefix=False)
        self.factor, self.window = factor, window
        self.scale = Parameter(Tensor(value, ms.float32), name="loss_scale.scale", requires_grad=False)
        self.good_steps = Parameter(Tensor(0, ms.int32), name="loss_scale.good_steps", requires_grad=False)
        self.smallest, self.largest = Tensor(1.0, ms.float32), Tensor(LARGEST_SCALE, ms.float32)
        self.zero = Tensor(0, ms.int32)

    def construct(self, finite):
        """finite: bool () of this step."""
        good = ops.select(finite, self.good_steps + 1, self.zero)
        grown = good >= self.window
        raised = ops.select(grown, ops.minimum(self.scale * self.factor, self.largest), self.scale + 0.0)
        lowered = ops.maximum(self.scale / self.factor, self.smallest)
        changed = ops.assign(self.scale, ops.select(finite, raised, lowered))
        counted = ops.assign(self.good_steps, ops.select(grown, self.zero, good))
        return changed, counted


def make_loss_scale(type: str, value: float, factor: float, window: int) -> nn.Cell:
    """type: one of TYPES."""
    if type == "dynamic":
        return DynamicLossScale(value, factor, window)
    return FixedLossScale(value if type == "fixed" else 1.0)
