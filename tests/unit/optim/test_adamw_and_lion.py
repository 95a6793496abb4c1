"""AdamW and Lion against numpy over several steps, their state, and what gets no decay."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor

from msrun_cli.optim.adamw import AdamW
from msrun_cli.optim.lion import Lion

SHAPES = {"conv.weight": (2, 3, 1, 1), "bn.gamma": (2,), "bn.beta": (2,), "fc.weight": (4, 2), "fc.bias": (4,)}
DECAYED = ("conv.weight", "fc.weight")


def adamw_reference(values, gradients, betas, lr, beta2, eps, decay):
    """One numpy step per entry of `gradients`; betas: beta 1 of each step."""
    first = {name: np.zeros_like(value) for name, value in values.items()}
    second = {name: np.zeros_like(value) for name, value in values.items()}
    product = 1.0
    for step, (batch, beta1) in enumerate(zip(gradients, betas, strict=True), 1):
        product *= beta1
        for name, g in batch.items():
            first[name] = beta1 * first[name] + (1 - beta1) * g
            second[name] = beta2 * second[name] + (1 - beta2) * g**2
            m, v = first[name] / (1 - product), second[name] / (1 - beta2**step)
            values[name] = values[name] - lr * (
                m / (np.sqrt(v) + eps) + (decay if name in DECAYED else 0) * values[name]
            )
    return values


def lion_reference(values, gradients, betas, lr, beta2, decay):
    average = {name: np.zeros_like(value) for name, value in values.items()}
    for batch, beta1 in zip(gradients, betas, strict=True):
        for name, g in batch.items():
            direction = np.sign(beta1 * average[name] + (1 - beta1) * g)
            values[name] = values[name] - lr * (direction + (decay if name in DECAYED else 0) * values[name])
            average[name] = beta2 * average[name] + (1 - beta2) * g
    return values


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("betas", [[0.9] * 5, [0.8, 0.85, 0.9, 0.9, 0.9]], ids=["constant", "warm-up"])
@pytest.mark.parametrize("kind", [AdamW, Lion])
def test_updates_equal_the_formula(kind, betas, mode):
    ms.set_context(mode=mode)
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
    gradients = [{name: rng.standard_normal(shape) for name, shape in SHAPES.items()} for _ in betas]
    parameters = [Parameter(Tensor(value.astype(np.float32)), name=name) for name, value in values.items()]
    if kind is AdamW:
        optimizer = AdamW(parameters, lr=0.1, beta2=0.95, eps=1e-6, weight_decay=0.2)
        expected = adamw_reference(dict(values), gradients, betas, 0.01, 0.95, 1e-6, 0.2)
    else:
        optimizer = Lion(parameters, lr=0.1, beta2=0.95, weight_decay=0.2)
        expected = lion_reference(dict(values), gradients, betas, 0.01, 0.95, 0.2)
    for batch, beta1 in zip(gradients, betas, strict=True):
        optimizer(
            tuple(Tensor((batch[p.name] * 4).astype(np.float32)) for p in optimizer.parameters),
            *(Tensor(number, ms.float32) for number in (0.25, 0.01, 0.7, beta1)),  # 0.7: the rate of SGD's biases
        )
    for parameter in parameters:
        np.testing.assert_allclose(parameter.asnumpy(), expected[parameter.name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "per_parameter", "more"), [(AdamW, 2, 2), (Lion, 1, 0)])
def test_state_is_in_the_checkpoint_under_unique_names(kind, per_parameter, more):
    parameters = [Parameter(Tensor(np.ones(shape, np.float32)), name=name) for name, shape in SHAPES.items()]
    optimizer = kind(parameters)
    names = [parameter.name for parameter in optimizer.get_parameters()]
    assert len(set(names)) == len(names) == len(SHAPES) * (1 + per_parameter) + more
    trainable = {parameter.name for parameter in optimizer.trainable_params()}
    assert trainable == set(SHAPES)  # state is never trained
