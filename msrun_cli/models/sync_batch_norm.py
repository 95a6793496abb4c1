"""BatchNorm over the batches of all devices, where each alone is too small for its statistics."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn, ops

from msrun_cli.models.children import replace_child


def synchronize_norms(network: nn.Cell, device_count: int, target: str) -> int:
    """Replace every `nn.BatchNorm2d`, in place, when there are several devices; returns how many.

    Parameters stay the same objects with the same names, so weights and checkpoints fit both kinds.
    target: "Ascend" has a kernel of its own (`nn.SyncBatchNorm`); elsewhere the sums are exchanged one by one.
    """
    if device_count < 2:
        return 0
    count = 0
    for _, parent in list(network.cells_and_names()):
        for name, child in list(parent.name_cells().items()):
            if isinstance(child, nn.BatchNorm2d):
                replace_child(parent, name, _synchronized(child, device_count, target))
                count += 1
    return count


def _synchronized(norm: nn.BatchNorm2d, device_count: int, target: str) -> nn.Cell:
    channels, eps, kept = norm.num_features, norm.eps, 1.0 - norm.momentum
    new: nn.Cell
    if target == "Ascend":
        new = AscendSyncBatchNorm2d(channels, eps=eps, momentum=kept)
    else:
        new = ExchangedBatchNorm2d(channels, eps, kept, device_count)
    for name in ("gamma", "beta", "moving_mean", "moving_variance"):
        setattr(new, name, getattr(norm, name))
    new.use_batch_statistics = norm.use_batch_statistics
    return new


class AscendSyncBatchNorm2d(nn.SyncBatchNorm, nn.BatchNorm2d):
    """MindSpore's own, and a BatchNorm2d besides: those are what precision O2 keeps in float32."""


class ExchangedBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` over (B, C, H, W) whose mean and variance are those of all devices, which hold B images each.

    Exchanged are the means, then the mean squares of what is left; the gradient of the exchange is an exchange again.
    momentum: share of the old running statistic that is kept.
    """

    def __init__(self, channels: int, eps: float, momentum: float, device_count: int) -> None:
        super().__init__(channels, eps=eps, momentum=momentum)
        self.device_count = device_count
        self.new_share = 1.0 - momentum
        self.all_reduce = ops.AllReduce()  # the sum over all devices

    def construct(self, x):
        if not self.training or self.use_batch_statistics is not None:
            return super().construct(x)
        values = x.astype(ms.float32)
        mean = self._over_devices(values)
        deviation = values - mean.reshape(1, -1, 1, 1)
        variance = self._over_devices(ops.square(deviation))
        count = x.shape[0] * x.shape[2] * x.shape[3] * self.device_count
        unbiased = ops.stop_gradient(variance) * (count / max(count - 1, 1))
        share = self.new_share
        ops.assign(self.moving_mean, self.moving_mean + (ops.stop_gradient(mean) - self.moving_mean) * share)
        ops.assign(self.moving_variance, self.moving_variance + (unbiased - self.moving_variance) * share)
        scale = (self.gamma / ops.sqrt(variance + self.eps)).reshape(1, -1, 1, 1)
        return (deviation * scale + self.beta.reshape(1, -1, 1, 1)).astype(x.dtype)

    def _over_devices(self, values):
        """Mean over all but the channels and over the devices, (B, C, H, W) -> (C,)."""
        return self.all_reduce(values.mean(axis=3).mean(axis=2).mean(axis=0)) / self.device_count
