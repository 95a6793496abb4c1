"""ResNet-18, 34, 50, 101 and 152 (He et al. 2015, table 1), v1.5: the bottleneck's stride is on its 3x3 convolution.

Parameter names are those of the published PyTorch state dicts (`layer1.0.conv1.weight`, `fc.weight`, ...).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mindspore import nn
from mindspore.common.initializer import HeNormal, Uniform

from msrun_cli.common.errors import ConfigError
from msrun_cli.models.batch_norm import BatchNorm2d
from msrun_cli.models.normalize import MEAN, STD, NormalizeImage

# depth -> (whether its blocks are bottlenecks, blocks per stage)
LAYOUTS = {
    18: (False, (2, 2, 2, 2)),
    34: (False, (3, 4, 6, 3)),
    50: (True, (3, 4, 6, 3)),
    101: (True, (3, 4, 23, 3)),
    152: (True, (3, 8, 36, 3)),
}
STAGE_CHANNELS = (64, 128, 256, 512)
BATCH_NORM_EPSILON = 1e-5
BATCH_NORM_MOMENTUM = 0.9  # share of the old running statistic that is kept


class ResNet(nn.Cell):
    """construct: images uint8 (B, H, W, 3) RGB -> logits (B, num_classes). H and W at least 32.

    Convolutions start from a normal distribution with the fan-out variance of He et al. 2015.

    Args:
        num_classes: number of classes, at least 1.
        depth: 18, 34, 50, 101 or 152.
        mean, std: of the channels, on the 0..255 scale.
        zero_init_last_gamma: the last BatchNorm of each block starts at 0, so that each block starts as the identity
            (Goyal et al. 2017, section 5.1).

    Raises:
        ConfigError: another depth.
    """

    head_prefixes = ("fc.",)
    folds = (("conv1", "bn1"),)
    activates = (("bn1", "relu"),)

    def __init__(
        self,
        num_classes: int,
        depth: int = 50,
        mean: Sequence[float] = MEAN,
        std: Sequence[float] = STD,
        zero_init_last_gamma: bool = False,
    ) -> None:
        super().__init__()
        if depth not in LAYOUTS:
            raise ConfigError(
                f"model.network.depth={depth}: there is a ResNet of depth {', '.join(map(str, LAYOUTS))}."
            )
        bottleneck, counts = LAYOUTS[depth]
        block = Bottleneck if bottleneck else BasicBlock
        self.normalize = NormalizeImage(mean, std)
        self.conv1 = conv2d(3, STAGE_CHANNELS[0], 7, 2)
        self.bn1 = norm(STAGE_CHANNELS[0])
        self.relu = nn.ReLU()
        # A padding cell before it is no way: the gradient of MindSpore 2.10's CPU kernel sometimes never ends.
        self.maxpool = nn.MaxPool2d(3, 2, pad_mode="pad", padding=1)
        stages, channels_in = [], STAGE_CHANNELS[0]
        for index, (channels, count) in enumerate(zip(STAGE_CHANNELS, counts, strict=True)):
            strides = [1 if index == 0 else 2] + [1] * (count - 1)
            cells = []
            for stride in strides:
                cells.append(block(channels_in, channels, stride, zero_init_last_gamma))
                channels_in = channels * block.expansion
            stages.append(nn.SequentialCell(cells))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = dense(channels_in, num_classes)

    def construct(self, images):
        x = self.relu(self.bn1(self.conv1(self.normalize(images))))
        x = self.maxpool(x)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(axis=(2, 3)))


class BasicBlock(nn.Cell):
    """Two 3x3 convolutions, the first with the stride, added to the (projected) input."""

    expansion = 1
    folds = (("conv1", "bn1"), ("conv2", "bn2"))
    activates = (("bn1", "relu1"),)

    def __init__(self, channels_in: int, channels: int, stride: int, zero_init_last_gamma: bool) -> None:
        super().__init__()
        self.conv1 = conv2d(channels_in, channels, 3, stride)
        self.bn1 = norm(channels)
        self.conv2 = conv2d(channels, channels, 3, 1)
        self.bn2 = norm(channels, zero_init_last_gamma)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.downsample = projection(channels_in, channels, stride)

    def construct(self, x):
        y = self.relu1(self.bn1(self.conv1(x)))
        return self.relu2(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Cell):
    """1x1 to `channels`, 3x3 with the stride, 1x1 to four times `channels`, added to the (projected) input."""

    expansion = 4
    folds = (("conv1", "bn1"), ("conv2", "bn2"), ("conv3", "bn3"))
    activates = (("bn1", "relu1"), ("bn2", "relu2"))

    def __init__(self, channels_in: int, channels: int, stride: int, zero_init_last_gamma: bool) -> None:
        super().__init__()
        channels_out = channels * self.expansion
        self.conv1 = conv2d(channels_in, channels, 1, 1)
        self.bn1 = norm(channels)
        self.conv2 = conv2d(channels, channels, 3, stride)
        self.bn2 = norm(channels)
        self.conv3 = conv2d(channels, channels_out, 1, 1)
        self.bn3 = norm(channels_out, zero_init_last_gamma)
        self.relu1, self.relu2, self.relu3 = nn.ReLU(), nn.ReLU(), nn.ReLU()
        self.downsample = projection(channels_in, channels_out, stride)

    def construct(self, x):
        y = self.relu1(self.bn1(self.conv1(x)))
        y = self.relu2(self.bn2(self.conv2(y)))
        return self.relu3(self.bn3(self.conv3(y)) + self.downsample(x))


def projection(channels_in: int, channels_out: int, stride: int) -> nn.Cell:
    """1x1 convolution and BatchNorm where the block changes the shape (option B), else the identity."""
    if stride == 1 and channels_in == channels_out:
        return nn.Identity()
    return Projection([conv2d(channels_in, channels_out, 1, stride), norm(channels_out)])


class Projection(nn.SequentialCell):
    """Convolution and BatchNorm."""

    folds = (("0", "1"),)


def conv2d(channels_in: int, channels_out: int, kernel: int, stride: int) -> nn.Conv2d:
    """Convolution without bias that keeps the size at stride 1."""
    weight = HeNormal(mode="fan_out", nonlinearity="relu")
    padding = kernel // 2
    return nn.Conv2d(channels_in, channels_out, kernel, stride, pad_mode="pad", padding=padding, weight_init=weight)


def norm(channels: int, zero_gamma: bool = False) -> BatchNorm2d:
    cell = BatchNorm2d(channels, eps=BATCH_NORM_EPSILON, momentum=BATCH_NORM_MOMENTUM)
    if zero_gamma:
        cell.gamma.set_data(cell.gamma * 0)
    return cell


def dense(channels_in: int, channels_out: int) -> nn.Dense:
    """Uniform within +-1/sqrt(fan_in) at the start."""
    bound = 1 / math.sqrt(channels_in)
    return nn.Dense(channels_in, channels_out, weight_init=Uniform(bound), bias_init=Uniform(bound))
