"""Exponential moving average of the weights, kept in the parameters of a second network that is used for evaluation."""

from __future__ import annotations

from pathlib import Path

from mindspore import ParameterTuple, nn, ops

from msrun_cli.kernels.operators import all_float32, moving_average

_average = ops.MultitypeFuncGraph("ema_average")


@_average.register("Tensor", "Tensor", "Tensor")
def _assign(share, average, value):
    return ops.assign(average, ops.lerp(average, value, share))


class ExponentialMovingAverage(nn.Cell):
    """average += (1 - d) * (value - average) with d = decay * (1 - exp(-updates / tau)), BatchNorm statistics included.

    The ramp lets the average follow quickly in the first `tau` updates (YOLOv5).

    Args:
        network: the network that is trained.
        average_network: one of the same structure; its parameters become the average and start as a copy.
        decay: share of the old average in the long run, 0..1.
        tau: updates after which the ramp has reached 63 % of `decay`.
        kernels: library that averages all of them at once; None = one operator for each.
    """

    def __init__(
        self, network: nn.Cell, average_network: nn.Cell, decay: float, tau: float, kernels: Path | None = None
    ) -> None:
        super().__init__(auto_prefix=False)
        self.decay, self.tau = decay, tau
        self.values = ParameterTuple(network.get_parameters())
        self.averages = ParameterTuple(average_network.get_parameters())
        copy_parameters(network, average_network)
        for average in self.averages:
            average.requires_grad = False
        self.map = ops.HyperMap()
        self.at_once = kernels is not None and all_float32(self.values)
        if self.at_once:
            self.kernel = moving_average(kernels, len(self.values))

    def construct(self, updates):
        """`updates`: int32 () number of updates including this one."""
        ramp = 1.0 - ops.exp(-updates.astype("float32") / self.tau)
        share = 1.0 - self.decay * ramp
        if self.at_once:
            return self.kernel(share, *self.averages, *self.values)
        return self.map(ops.partial(_average, share), self.averages, self.values)


def copy_parameters(source: nn.Cell, target: nn.Cell) -> None:
    """Set every parameter of `target` to that of `source`, a network of the same structure."""
    for copy, value in zip(target.get_parameters(), source.get_parameters(), strict=True):
        copy.set_data(value.value().copy())


class NoAverage(nn.Cell):
    """Stands in when the average is off: does nothing."""

    def construct(self, updates):
        return True
