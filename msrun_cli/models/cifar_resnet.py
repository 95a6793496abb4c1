"""The ResNets for 32 px pictures of He et al. 2015, section 4.2: 6n + 2 layers, parameter-free shortcuts (option A).

Parameter names are those of the widely used PyTorch state dicts (`layer1.0.conv1.weight`, `linear.weight`, ...).
"""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import nn, ops

from msrun_cli.common.errors import ConfigError
from msrun_cli.models.normalize import MEAN, STD, NormalizeImage
from msrun_cli.models.resnet import conv2d, dense, norm

STAGE_CHANNELS = (16, 32, 64)


class CifarResNet(nn.Cell):
    """construct: images uint8 (B, 32, 32, 3) RGB -> logits (B, num_classes); other sizes that are even work, too.

    Args:
        num_classes: number of classes, at least 1.
        depth: number of layers, 6n + 2: 20, 32, 44, 56, 110.
        mean, std: of the channels, on the 0..255 scale.
        zero_init_last_gamma: the last BatchNorm of each block starts at 0.

    Raises:
        ConfigError: another depth.
    """

    head_prefixes = ("linear.",)
    folds = (("conv1", "bn1"),)
    activates = (("bn1", "relu"),)

    def __init__(
        self,
        num_classes: int,
        depth: int = 20,
        mean: Sequence[float] = MEAN,
        std: Sequence[float] = STD,
        zero_init_last_gamma: bool = False,
    ) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise ConfigError(f"model.network.depth={depth}: must be 6n + 2, such as 20, 32, 44, 56 or 110.")
        self.normalize = NormalizeImage(mean, std)
        self.conv1 = conv2d(3, STAGE_CHANNELS[0], 3, 1)
        self.bn1 = norm(STAGE_CHANNELS[0])
        self.relu = nn.ReLU()
        stages, channels_in = [], STAGE_CHANNELS[0]
        for channels in STAGE_CHANNELS:
            cells = []
            for _ in range((depth - 2) // 6):
                cells.append(CifarBlock(channels_in, channels, zero_init_last_gamma))
                channels_in = channels
            stages.append(nn.SequentialCell(cells))
        self.layer1, self.layer2, self.layer3 = stages
        self.linear = dense(channels_in, num_classes)

    def construct(self, images):
        x = self.relu(self.bn1(self.conv1(self.normalize(images))))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean(axis=(2, 3)))


class CifarBlock(nn.Cell):
    """Two 3x3 convolutions. Where the channels double, the stride is 2 and the shortcut is option A: every second
    pixel, with zeros for the new channels, half of them before and half behind.
    """

    folds = (("conv1", "bn1"), ("conv2", "bn2"))
    activates = (("bn1", "relu1"),)

    def __init__(self, channels_in: int, channels: int, zero_init_last_gamma: bool) -> None:
        super().__init__()
        stride = 1 if channels == channels_in else 2
        self.new_channels = channels - channels_in
        self.conv1 = conv2d(channels_in, channels, 3, stride)
        self.bn1 = norm(channels)
        self.conv2 = conv2d(channels, channels, 3, 1)
        self.bn2 = norm(channels, zero_init_last_gamma)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        # x[:, :, ::2, ::2], whose gradient fails on a CPU in MindSpore 2.10
        self.every_second = nn.MaxPool2d(1, 2, pad_mode="valid")

    def construct(self, x):
        y = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        if self.new_channels > 0:
            x = self.every_second(x)
            zeros = ops.zeros((x.shape[0], self.new_channels // 2, x.shape[2], x.shape[3]), x.dtype)
            x = ops.concat((zeros, x, zeros), axis=1)
        return self.relu2(y + x)
