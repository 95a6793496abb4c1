"""SGD with Nesterov momentum over groups of parameters, as detection recipes use it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msrun_cli.kernels.operators import all_float32, momentum_update
from msrun_cli.optim.parameter_groups import ParameterSetting, arranged

_update = ops.MultitypeFuncGraph("sgd_update")


@_update.register("Function", "Bool", "Tensor", "Tensor", "Tensor", "Number", "Tensor", "Tensor", "Tensor")
def _apply(apply_momentum, nesterov, lr, momentum, factor, decay, parameter, gradient, velocity):
    gradient = gradient * factor
    if decay != 0.0:
        gradient = gradient + parameter * decay
    if not nesterov:
        return apply_momentum(parameter, velocity, lr, gradient, momentum)
    # The kernel's own use_nesterov is ignored on a CPU, so the look-ahead is spelt out: momentum * v, then g itself.
    moved = apply_momentum(parameter, velocity, lr * momentum, gradient, momentum)
    return ops.assign_sub(parameter, ops.depend(gradient * lr, moved))


@_update.register("Function", "Tensor", "Tensor", "Tensor", "Tensor", "Tensor", "Tensor", "Tensor")
def _apply_fused(kernel, lr, momentum, factor, parameter, gradient, velocity, no_first_step):
    """`kernel` knows the weight decay and whether to look ahead."""
    return kernel(parameter, gradient * factor, lr, velocity, momentum, no_first_step)


# The kernel wants a tensor that says where a velocity is still to be started: zeros, one for each shape that occurs. In
# a network of larger shapes they cost memory, and launching does not count.
MOST_ZEROS = 1 << 24
# Without momentum the kernel does not write the velocity; as a factor this is zero in float32.
NO_MOMENTUM = 1e-30


class SGD(nn.Cell):
    """Stochastic gradient descent: v = momentum * v + g; p -= lr * (g + momentum * v) with Nesterov, else lr * v.

    The groups are weights (with weight decay: matrices and convolution kernels), norms (BatchNorm gamma) and
    biases (everything
    of one axis that ends in beta or bias; they have a warm-up rate of their own).

    construct(gradients, factor, lr, bias_lr, momentum): one update. `gradients` in the order of `self.parameters`;
    each is multiplied by `factor` first (unscaling and clipping in one pass over memory).

    Args:
        params: trainable parameters.
        lr, momentum: read by the schedule, which passes the current values to construct.
        weight_decay: L2 factor, added to the gradient of the weights. Fixed once the optimizer is made.
        nesterov: look-ahead momentum (Nesterov).
        settings: by the parameter's name, for those with a rate or weight decay of their own.
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float = 0.01,
        momentum: float = 0.937,
        weight_decay: float = 5e-4,
        nesterov: bool = True,
        settings: Mapping[str, ParameterSetting] | None = None,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        parameters, self.groups = arranged(params, settings)
        self.parameters = ParameterTuple(parameters)
        self.velocities = self.parameters.clone(prefix="velocity", init="zeros")
        for velocity in self.velocities:
            velocity.requires_grad = False
        self.nesterov = nesterov
        self.apply_momentum = ops.ApplyMomentum()
        self.decays = [weight_decay * common + own for *_, common, own in self.groups]
        # A CPU computes the whole formula in one operator; its launching is what a small parameter costs.
        self.fused = _is_fusible(parameters)
        if self.fused:
            self.kernels = [ops.SGD(0.0, decay, nesterov) for decay in self.decays]
            zeros = {shape: Tensor(np.zeros(shape, np.float32)) for shape in {item.shape for item in parameters}}
            self.no_first_step = tuple(zeros[parameter.shape] for parameter in parameters)
        self.map = ops.HyperMap()
        self.at_once = False

    def use_kernels(self, library: Path) -> None:
        """Update all parameters by one kernel of `library`."""
        if not all_float32(self.parameters):
            return
        scales = np.zeros((2, len(self.parameters)), np.float32)  # of the rate, of the rate of biases
        decays = np.zeros(len(self.parameters), np.float32)
        for (start, stop, lr_scale, is_bias, _, _), decay in zip(self.groups, self.decays, strict=True):
            scales[int(is_bias), start:stop] = lr_scale
            decays[start:stop] = decay
        self.lr_scales, self.bias_scales, self.all_decays = Tensor(scales[0]), Tensor(scales[1]), Tensor(decays)
        self.looks_ahead = Tensor(np.array([self.nesterov], np.float32))
        self.kernel = momentum_update(library, len(self.parameters))
        self.at_once, self.no_first_step = True, ()

    def construct(self, gradients, factor, lr, bias_lr, momentum):
        if self.at_once:
            rates = lr * self.lr_scales + bias_lr * self.bias_scales
            tensors = self.parameters + self.velocities + gradients
            return self.kernel(factor, momentum, rates, self.all_decays, self.looks_ahead, *tensors)
        done = ()
        if self.fused:
            momentum = ops.maximum(momentum, Tensor(NO_MOMENTUM, ms.float32))
        for index in range(len(self.groups)):
            start, stop, lr_scale, is_bias, _, _ = self.groups[index]
            rate = lr
            if is_bias:
                rate = bias_lr
            if lr_scale != 1.0:
                rate = rate * lr_scale
            members = (self.parameters[start:stop], gradients[start:stop], self.velocities[start:stop])
            if self.fused:
                update = ops.partial(_update, self.kernels[index], rate, momentum, factor)
                done = done + (self.map(update, *members, self.no_first_step[start:stop]),)
            else:
                decay = self.decays[index]
                update = ops.partial(_update, self.apply_momentum, self.nesterov, rate, momentum, factor, decay)
                done = done + (self.map(update, *members),)
        return done


def _is_fusible(parameters: list[Parameter]) -> bool:
    if ms.get_context("device_target") != "CPU" or ms.get_auto_parallel_context("enable_parallel_optimizer"):
        return False
    zeros = sum(math.prod(shape) for shape in {parameter.shape for parameter in parameters})
    return zeros <= MOST_ZEROS and all(parameter.dtype == ms.float32 for parameter in parameters)
