"""AdamW (Loshchilov and Hutter 2017): Adam whose weight decay is apart from the gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msrun_cli.optim.parameter_groups import ParameterSetting, arranged

_update = ops.MultitypeFuncGraph("adamw_update")


@_update.register("Number", "Number", "Number", "Tensor", "Tensor", "Tensor", "Tensor", "Tensor", "Tensor", "Tensor",
                  "Tensor", "Tensor")  # fmt: skip
def _apply(beta2, eps, decay, lr, beta1, correct1, correct2, factor, parameter, gradient, first, second):
    gradient = gradient.astype(ms.float32) * factor
    first_now = ops.assign(first, first * beta1 + gradient * (1.0 - beta1))
    second_now = ops.assign(second, second * beta2 + ops.square(gradient) * (1.0 - beta2))
    step = (first_now / correct1) / (ops.sqrt(second_now / correct2) + eps)
    return ops.assign(parameter, parameter - lr * (step + parameter * decay))


class AdamW(nn.Cell):
    """m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr * (m' / (sqrt(v') + eps) + decay * p).

    m' and v' are m and v corrected for their start at zero. Norms and biases have no decay.

    construct(gradients, factor, lr, bias_lr, momentum): as in `optim.sgd.SGD`; all move by
    `lr`, biases too. `momentum` is b1, which may change from
    step to step: m' divides by 1 minus the product of all of them.

    Args:
        params: trainable parameters.
        lr, momentum: read by the schedule, which passes the current values to construct.
        beta2: 0..1; eps: added to the root; weight_decay: times lr.
        settings: by the parameter's name, for those with a rate or weight decay of their own.
    """

    def __init__(
        self,
        params: Iterable[Parameter],
        lr: float = 1e-3,
        momentum: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.05,
        settings: Mapping[str, ParameterSetting] | None = None,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.lr, self.momentum, self.beta2, self.eps, self.weight_decay = lr, momentum, beta2, eps, weight_decay
        parameters, self.groups = arranged(params, settings)
        self.parameters = ParameterTuple(parameters)
        self.first = self.parameters.clone(prefix="first_moment", init="zeros")
        self.second = self.parameters.clone(prefix="second_moment", init="zeros")
        for moment in (*self.first, *self.second):
            moment.requires_grad = False
        self.beta1_power = Parameter(Tensor(1.0, ms.float32), name="adamw.beta1_power", requires_grad=False)
        self.beta2_power = Parameter(Tensor(1.0, ms.float32), name="adamw.beta2_power", requires_grad=False)
        self.map = ops.HyperMap()

    def construct(self, gradients, factor, lr, bias_lr, momentum):
        power1 = ops.assign(self.beta1_power, self.beta1_power * momentum)
        power2 = ops.assign(self.beta2_power, self.beta2_power * self.beta2)
        corrections = (momentum, 1.0 - power1, 1.0 - power2, factor)
        done = ()
        for start, stop, lr_scale, _, common_decay, own_decay in self.groups:
            rate = lr
            if lr_scale != 1.0:
                rate = rate * lr_scale
            decay = self.weight_decay * common_decay + own_decay
            done = done + (self._group(start, stop, gradients, decay, rate, corrections),)
        return done

    def _group(self, start, stop, gradients, decay, lr, corrections):
        beta1, correct1, correct2, factor = corrections
        return self.map(
            ops.partial(_update, self.beta2, self.eps, decay, lr, beta1, correct1, correct2, factor),
            self.parameters[start:stop],
            gradients[start:stop],
            self.first[start:stop],
            self.second[start:stop],
        )
