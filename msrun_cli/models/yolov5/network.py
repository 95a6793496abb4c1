"""YOLOv5 n/s/m/l/x: backbone, neck and the anchor-based head of release 6/7 (6x6 stem, SPPF).

Parameter names follow the published PyTorch layout (`model.<index>.<block>...`), so weights map by name.
"""

from __future__ import annotations

import math

import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import Normal

from msrun_cli.models.yolov5.layers import C3, SPPF, ConvBlock, NormalizeImage, Upsample2x

STRIDES = (8, 16, 32)
# (width, height) in pixels of three anchors per level, from the YOLOv5 paper trail (COCO k-means at 640 px).
ANCHORS_PIXELS = (
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)


class YOLOv5(nn.Cell):
    """Detection network.

    construct: images uint8 (B, S, S, 3) RGB -> three raw maps (B, 3, S/stride, S/stride, 5 + num_classes) before the
    sigmoid, per anchor [x, y, w, h, objectness, classes...].

    Args:
        num_classes: number of classes, at least 1.
        depth_multiple: factor on the number of bottlenecks.
        width_multiple: factor on the number of channels.
    """

    strides = STRIDES
    head_prefixes = ("model.24.",)
    anchors_pixels = ANCHORS_PIXELS

    def __init__(self, num_classes: int, depth_multiple: float, width_multiple: float) -> None:
        super().__init__()
        self.num_classes = num_classes

        def width(channels: int) -> int:
            return math.ceil(channels * width_multiple / 8) * 8

        def depth(count: int) -> int:
            return max(round(count * depth_multiple), 1)

        c1, c2, c3, c4, c5 = (width(c) for c in (64, 128, 256, 512, 1024))
        self.normalize = NormalizeImage()
        self.model = nn.CellList(
            [
                ConvBlock(3, c1, 6, 2, padding=2),  # 0: 1/2
                ConvBlock(c1, c2, 3, 2),  # 1: 1/4
                C3(c2, c2, depth(3)),
                ConvBlock(c2, c3, 3, 2),  # 3: 1/8
                C3(c3, c3, depth(6)),
                ConvBlock(c3, c4, 3, 2),  # 5: 1/16
                C3(c4, c4, depth(9)),
                ConvBlock(c4, c5, 3, 2),  # 7: 1/32
                C3(c5, c5, depth(3)),
                SPPF(c5, c5),  # 9
                ConvBlock(c5, c4, 1),  # 10: top-down path
                Upsample2x(),
                Concat(),
                C3(2 * c4, c4, depth(3), shortcut=False),
                ConvBlock(c4, c3, 1),  # 14
                Upsample2x(),
                Concat(),
                C3(2 * c3, c3, depth(3), shortcut=False),  # 17: level of stride 8
                ConvBlock(c3, c3, 3, 2),  # 18: bottom-up path
                Concat(),
                C3(2 * c3, c4, depth(3), shortcut=False),  # 20: level of stride 16
                ConvBlock(c4, c4, 3, 2),
                Concat(),
                C3(2 * c4, c5, depth(3), shortcut=False),  # 23: level of stride 32
                DetectionHead((c3, c4, c5), num_classes),  # 24
            ]
        )

    def construct(self, images):
        m = self.model
        x = self.normalize(images)
        x = m[2](m[1](m[0](x)))
        level8 = m[4](m[3](x))
        level16 = m[6](m[5](level8))
        top = m[10](m[9](m[8](m[7](level16))))
        middle = m[14](m[13](m[12](m[11](top), level16)))
        out8 = m[17](m[16](m[15](middle), level8))
        out16 = m[20](m[19](m[18](out8), middle))
        out32 = m[23](m[22](m[21](out16), top))
        return m[24](out8, out16, out32)

    def decoder(self) -> nn.Cell:
        """The cell that turns this network's raw maps into boxes and scores."""
        return BoxDecoder(self.anchors_pixels, self.strides)


class Concat(nn.Cell):
    """Joins two maps along the channels."""

    def construct(self, a, b):
        return ops.concat((a, b), axis=1)


class DetectionHead(nn.Cell):
    """One 1x1 convolution per level. It starts near its bias, which is the expected objectness and class frequency.

    Small weights (standard deviation 0.01) and the prior follow Lin et al., RetinaNet, section 4.1. With the usual
    larger weights a fresh head sends noise into a pretrained backbone: on small data that costs several points of mAP
    and makes the result depend on the seed. The prior: about 8 objects in a 640 px image, 0.6 of a class share.
    """

    def __init__(self, channels: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.num_anchors = len(ANCHORS_PIXELS[0])
        self.num_outputs = 5 + num_classes
        outputs = self.num_anchors * self.num_outputs
        self.m = nn.CellList(
            [
                nn.Conv2d(
                    count,
                    outputs,
                    1,
                    has_bias=True,
                    weight_init=Normal(0.01),
                    bias_init=self._prior(num_classes, stride),
                )
                for count, stride in zip(channels, STRIDES, strict=True)
            ]
        )

    def _prior(self, num_classes: int, stride: int) -> Tensor:
        bias = np.zeros((self.num_anchors, self.num_outputs), np.float32)
        bias[:, 4] = math.log(8 / (640 / stride) ** 2)
        bias[:, 5:] = math.log(0.6 / (num_classes - 0.99999))
        return Tensor(bias.reshape(-1))

    def construct(self, x8, x16, x32):
        return self._level(self.m[0](x8)), self._level(self.m[1](x16)), self._level(self.m[2](x32))

    def _level(self, x):
        batch, _, height, width = x.shape
        x = x.reshape(batch, self.num_anchors, self.num_outputs, height, width)
        return ops.transpose(x, (0, 1, 3, 4, 2))


class BoxDecoder(nn.Cell):
    """Raw maps -> (B, N, 5 + num_classes) float32: cx, cy, w, h in pixels of the network input, objectness,
    class scores.

    center = (2 sigmoid(t) - 0.5 + cell) * stride, size = (2 sigmoid(t))^2 * anchor. Always float32: half precision
    would round centers to half a pixel at 640 px.
    """

    def __init__(self, anchors_pixels, strides: tuple[int, ...]) -> None:
        super().__init__()
        self.strides = strides
        self.anchors = [Tensor(np.array(level, np.float32).reshape(1, -1, 1, 1, 2)) for level in anchors_pixels]

    def construct(self, maps):
        levels = ()
        for index in range(len(maps)):
            levels = levels + (self._level(maps[index], self.anchors[index], self.strides[index]),)
        return ops.concat(levels, axis=1)

    def _level(self, raw, anchors, stride):
        batch, count, height, width, outputs = raw.shape
        scores = ops.sigmoid(raw.astype("float32"))
        ys, xs = ops.meshgrid(ops.arange(height), ops.arange(width), indexing="ij")
        cells = ops.stack((xs, ys), axis=-1).astype("float32").reshape(1, 1, height, width, 2)
        centers = (scores[..., 0:2] * 2.0 - 0.5 + cells) * stride
        sizes = ops.square(scores[..., 2:4] * 2.0) * anchors
        decoded = ops.concat((centers, sizes, scores[..., 4:]), axis=-1)
        return decoded.reshape(batch, count * height * width, outputs)
