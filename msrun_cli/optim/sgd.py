"""SGD with Nesterov momentum over three parameter groups, as detection recipes use it."""

from __future__ import annotations

from collections.abc import Iterable

from mindspore import Parameter, ParameterTuple, nn, ops

from msrun_cli.optim.parameter_groups import split_groups

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
        weight_decay: L2 factor, added to the gradient of the weights.
        nesterov: look-ahead momentum (Nesterov).
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float = 0.01,
        momentum: float = 0.937,
        weight_decay: float = 5e-4,
        nesterov: bool = True,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        weights, norms, biases = split_groups(params)
        self.sizes = (len(weights), len(norms), len(biases))
        self.parameters = ParameterTuple(weights + norms + biases)
        self.velocities = self.parameters.clone(prefix="velocity", init="zeros")
        for velocity in self.velocities:
            velocity.requires_grad = False
        self.nesterov = nesterov
        self.apply_momentum = ops.ApplyMomentum()
        self.map = ops.HyperMap()

    def construct(self, gradients, factor, lr, bias_lr, momentum):
        first, second = self.sizes[0], self.sizes[0] + self.sizes[1]
        done = (
            self._group(0, first, gradients, factor, lr, momentum, self.weight_decay),
            self._group(first, second, gradients, factor, lr, momentum, 0.0),
            self._group(second, second + self.sizes[2], gradients, factor, bias_lr, momentum, 0.0),
        )
        return done

    def _group(self, start, stop, gradients, factor, lr, momentum, decay):
        if start == stop:
            return ()
        return self.map(
            ops.partial(_update, self.apply_momentum, self.nesterov, lr, momentum, factor, decay),
            self.parameters[start:stop],
            gradients[start:stop],
            self.velocities[start:stop],
        )
