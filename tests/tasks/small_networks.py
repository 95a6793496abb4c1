"""Networks that compile in a moment, for jobs of several processes."""

from __future__ import annotations

from mindspore import nn


class Small(nn.Cell):
    """norm: with BatchNorm; without, what it learns does not depend on how a batch is shared out."""

    def __init__(self, num_classes: int, norm: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, has_bias=not norm)
        self.norm = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.relu = nn.ReLU()
        self.dense = nn.Dense(4, num_classes)

    def construct(self, x):
        return self.dense(self.relu(self.norm(self.conv(x))).mean(axis=(2, 3)))
