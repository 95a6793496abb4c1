"""The first cell of an image classifier: bytes of the host become normalised maps on the device."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

# ImageNet, on the 0..255 scale of the bytes.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)


class NormalizeImage(nn.Cell):
    """uint8 (B, H, W, 3) RGB -> float32 (B, 3, H, W), (x - mean) / std on the device: a quarter of the bytes to copy.

    float32 (B, 3, H, W) was normalised on the host (`dataset.normalize_on=host`) and passes as it is.

    Args:
        mean, std: one number per channel on the 0..255 scale; std > 0.
    """

    def __init__(self, mean: Sequence[float] = MEAN, std: Sequence[float] = STD) -> None:
        super().__init__()
        self.mean = Tensor(np.array(mean, np.float32).reshape(1, 3, 1, 1))
        self.factor = Tensor((1.0 / np.array(std, np.float64)).astype(np.float32).reshape(1, 3, 1, 1))

    def construct(self, images):
        if images.dtype != ms.uint8:
            return images
        x = ops.transpose(images, (0, 3, 1, 2)).astype("float32")
        return (x - self.mean) * self.factor
