"""Building blocks of YOLOv5 (Jocher et al., release 6/7): convolution + BatchNorm + SiLU, bottlenecks, C3, SPPF.

All tensors are (B, C, H, W).
"""

from __future__ import annotations

import math

from mindspore import nn, ops
from mindspore.common.initializer import Uniform

from msrun_cli.models.batch_norm import BatchNorm2d

BATCH_NORM_EPSILON = 1e-3
BATCH_NORM_MOMENTUM = 0.97  # share of the old running statistic that is kept


class SiLU(nn.Cell):
    """x * sigmoid(x) with a gradient of its own.

    The derivative s + y * (1 - s), with s = sigmoid(x) and y = x * s, is one fused expression; the automatic gradient
    of the product would take about three times as many elementwise passes over memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sigmoid = ops.Sigmoid()

    def construct(self, x):
        return x * self.sigmoid(x)

    def bprop(self, x, out, dout):
        s = self.sigmoid(x)
        return (dout * (s + out * (1 - s)),)


def conv2d(channels_in: int, channels_out: int, kernel: int, stride: int, padding: int | None) -> nn.Conv2d:
    """Convolution without bias that keeps the size at stride 1, uniform within +-1/sqrt(fan_in) at the start (He et al.
    2015 with a = sqrt(5)).
    """
    return nn.Conv2d(
        channels_in,
        channels_out,
        kernel,
        stride,
        pad_mode="pad",
        padding=kernel // 2 if padding is None else padding,
        weight_init=Uniform(1 / math.sqrt(channels_in * kernel * kernel)),
    )


class ConvBlock(nn.Cell):
    """Convolution without bias, BatchNorm, SiLU."""

    folds = (("conv", "bn"),)
    activates = (("bn", "act"),)

    def __init__(
        self, channels_in: int, channels_out: int, kernel: int = 1, stride: int = 1, padding: int | None = None
    ) -> None:
        super().__init__()
        self.conv = conv2d(channels_in, channels_out, kernel, stride, padding)
        self.bn = BatchNorm2d(channels_out, eps=BATCH_NORM_EPSILON, momentum=BATCH_NORM_MOMENTUM)
        self.act = SiLU()

    def construct(self, x):
        return self.act(self.bn(self.conv(x)))


class Bottleneck(nn.Cell):
    """1x1 then 3x3 ConvBlock, added to the input when `shortcut`."""

    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.cv1 = ConvBlock(channels, channels, 1)
        self.cv2 = ConvBlock(channels, channels, 3)
        self.shortcut = shortcut

    def construct(self, x):
        y = self.cv2(self.cv1(x))
        if self.shortcut:
            y = x + y
        return y


class C3(nn.Cell):
    """Cross-stage block (Wang et al., CSPNet) with three 1x1 ConvBlocks and `depth` bottlenecks."""

    def __init__(self, channels_in: int, channels_out: int, depth: int, shortcut: bool = True) -> None:
        super().__init__()
        hidden = channels_out // 2
        self.cv1 = ConvBlock(channels_in, hidden, 1)
        self.cv2 = ConvBlock(channels_in, hidden, 1)
        self.cv3 = ConvBlock(2 * hidden, channels_out, 1)
        self.m = nn.SequentialCell([Bottleneck(hidden, shortcut) for _ in range(depth)])

    def construct(self, x):
        return self.cv3(ops.concat((self.m(self.cv1(x)), self.cv2(x)), axis=1))


class SPPF(nn.Cell):
    """Spatial pyramid pooling: three chained 5x5 max pools see 5, 9 and 13 pixels."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int = 5) -> None:
        super().__init__()
        hidden = channels_in // 2
        self.cv1 = ConvBlock(channels_in, hidden, 1)
        self.cv2 = ConvBlock(4 * hidden, channels_out, 1)
        self.pool = nn.MaxPool2d(kernel_size=kernel, stride=1, pad_mode="same")

    def construct(self, x):
        x = self.cv1(x)
        y1 = self.pool(x)
        y2 = self.pool(y1)
        return self.cv2(ops.concat((x, y1, y2, self.pool(y2)), axis=1))


class Upsample2x(nn.Cell):
    """Nearest-neighbour enlargement by two.

    Written as a broadcast: forward and gradient are a copy and a sum on every device.
    """

    def construct(self, x):
        batch, channels, height, width = x.shape
        x = x.reshape(batch, channels, height, 1, width, 1)
        x = ops.broadcast_to(x, (batch, channels, height, 2, width, 2))
        return x.reshape(batch, channels, 2 * height, 2 * width)


class NormalizeImage(nn.Cell):
    """uint8 (B, H, W, 3) RGB from the host -> float32 (B, 3, H, W) in 0..1, on the device: a quarter of the
    bytes to copy.
    """

    def construct(self, images):
        return ops.transpose(images.astype("float32"), (0, 3, 1, 2)) / 255.0
