"""Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"): every weight moves by its rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import mindspore as ms
from mindspore import Parameter, ParameterTuple, nn, ops

from msrun_cli.optim.parameter_groups import ParameterSetting, arranged

_update = ops.MultitypeFuncGraph("lion_update")


@_update.register("Number", "Number", "Tensor", "Tensor", "Tensor", "Tensor", "Tensor", "Tensor")
def _apply(beta2, decay, lr, beta1, factor, parameter, gradient, average):
    gradient = gradient.astype(ms.float32) * factor
    direction = ops.sign(average * beta1 + gradient * (1.0 - beta1))
    moved = ops.assign(parameter, parameter - lr * (direction + parameter * decay))
    return ops.assign(average, ops.depend(average * beta2 + gradient * (1.0 - beta2), moved))


class Lion(nn.Cell):
    """p -= lr * (sign(b1 m + (1 - b1) g) + decay * p), then m = b2 m + (1 - b2) g. Norms and biases have no decay.

    Good rates are 3 to 10 times smaller than AdamW's and the decay that much larger (section 5 of the paper).
    construct(gradients, factor, lr, bias_lr, momentum): as in `optim.sgd.SGD`; all move by
    `lr`, biases too. `momentum` is b1.

    Args:
        params: trainable parameters.
        lr, momentum: read by the schedule, which passes the current values to construct.
        beta2: 0..1; weight_decay: times lr.
        settings: by the parameter's name, for those with a rate or weight decay of their own.
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float = 1e-4,
        momentum: float = 0.9,
        beta2: float = 0.99,
        weight_decay: float = 0.5,
        settings: Mapping[str, ParameterSetting] | None = None,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.lr, self.momentum, self.beta2, self.weight_decay = lr, momentum, beta2, weight_decay
        parameters, self.groups = arranged(params, settings)
        self.parameters = ParameterTuple(parameters)
        self.averages = self.parameters.clone(prefix="average", init="zeros")
        for average in self.averages:
            average.requires_grad = False
        self.map = ops.HyperMap()

    def construct(self, gradients, factor, lr, bias_lr, momentum):
        done = ()
        for start, stop, lr_scale, _, common_decay, own_decay in self.groups:
            rate = lr
            if lr_scale != 1.0:
                rate = rate * lr_scale
            decay = self.weight_decay * common_decay + own_decay
            done = done + (self._group(start, stop, gradients, decay, rate, momentum, factor),)
        return done

    def _group(self, start, stop, gradients, decay, lr, momentum, factor):
        return self.map(
            ops.partial(_update, self.beta2, decay, lr, momentum, factor),
            self.parameters[start:stop],
            gradients[start:stop],
            self.averages[start:stop],
        )
