"""BatchNorm whose batch statistics are summed accurately on a CPU.

The CPU kernel of `nn.BatchNorm2d` adds up a whole channel in one running float32 sum: on a large map the variance is
wrong by about 1e-5 of itself, an error that grows through the layers and moves the arg-max of pooling windows.
Summing each map in many parts keeps the error near 1e-7. That takes extra passes over memory, so smaller maps, on which
the kernel is accurate enough, and other devices use the fused kernel. Kernels of our own (kernels/) sum accurately in
one pass, and have the activation in it, too.
"""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
from mindspore import nn, ops

from msrun_cli.kernels.operators import BatchNorm
from msrun_cli.runtime.mindspore_versions import batch_norm_gradient

LARGE_MAP_PIXELS = 3000  # height x width from which the accurate sums are worth their time


class BatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` over (B, C, H, W) with the same parameters, names and results.

    `momentum` is the share of the old running statistic that is kept, as in MindSpore (1 minus PyTorch's).
    """

    def __init__(self, channels: int, eps: float, momentum: float) -> None:
        super().__init__(channels, eps=eps, momentum=momentum)
        self.accurate = ms.get_context("device_target") == "CPU"
        self.new_share = 1.0 - momentum
        self.normalize = _Normalize(eps)
        self.activation = nn.Identity()
        self.has_kernel = False

    def use_kernel(self, library: Path, activation: nn.Cell, name: str) -> None:
        """Compute training by a kernel of `library`, on float32.

        activation: of the result, from now on; name: of the kernel's activation, which is the same.
        """
        self.activation = activation
        self.kernel = BatchNorm(library, name, self.eps, self.new_share)
        self.has_kernel = True

    def construct(self, x):
        if self.has_kernel and self.training:
            return self._by_kernel(x)
        return self.activation(self._normalized(x))

    def _by_kernel(self, x):
        statistics = (self.moving_mean, self.moving_variance)
        y, _, _, mean, variance = self.kernel(x, self.gamma, self.beta, *statistics)
        ops.assign(self.moving_mean, mean)
        ops.assign(self.moving_variance, variance)
        return y

    def _normalized(self, x):
        large = x.shape[2] * x.shape[3] >= LARGE_MAP_PIXELS
        by_batch = self.training and self.use_batch_statistics is None  # False in a layer that is frozen
        if not (self.accurate and by_batch and large and x.dtype == ms.float32):
            return super().construct(x)
        mean = _mean(x)
        deviation = ops.stop_gradient(x) - mean.reshape(1, -1, 1, 1)
        variance = _mean(ops.square(deviation))
        count = x.shape[0] * x.shape[2] * x.shape[3]
        unbiased = variance * (count / max(count - 1, 1))
        ops.assign(self.moving_mean, self.moving_mean + (mean - self.moving_mean) * self.new_share)
        ops.assign(self.moving_variance, self.moving_variance + (unbiased - self.moving_variance) * self.new_share)
        return self.normalize(x, self.gamma, self.beta, mean, variance)


def _mean(x):
    """Mean over all but the channels, (B, C, H, W) -> (C,).

    One axis after the other, the width by a product with a vector of ones, which takes a quarter of the time of a
    reduction. A product over whole maps would be one running sum in MindSpore 2.7.
    """
    batch, channels, height, width = x.shape
    lines = ops.stop_gradient(x).reshape(batch * channels * height, width)
    sums = ops.matmul(lines, ops.ones((width, 1), ms.float32)).reshape(batch, channels, height)
    return sums.sum(axis=2).mean(axis=0) / (height * width)


class _Normalize(nn.Cell):
    """(x - mean) / sqrt(variance + eps) * gamma + beta, with the gradient of BatchNorm in training."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.forward_kernel = ops.BatchNorm(is_training=False, epsilon=eps)
        self.backward_kernel = batch_norm_gradient(eps)

    def construct(self, x, gamma, beta, mean, variance):
        return self.forward_kernel(x, gamma, beta, mean, variance)[0]

    def bprop(self, x, gamma, beta, mean, variance, out, dout):
        dx, dgamma, dbeta = self.backward_kernel(dout, x, gamma, mean, variance, variance)
        return dx, dgamma, dbeta, ops.zeros_like(mean), ops.zeros_like(variance)
