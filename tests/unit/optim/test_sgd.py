import math

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from msrun_cli.optim import sgd
from msrun_cli.optim.ema import ExponentialMovingAverage
from msrun_cli.optim.schedule import WarmupDecay
from msrun_cli.optim.sgd import SGD


def scalar(value):
    return Tensor(value, ms.float32)


@pytest.mark.parametrize("most_zeros", [sgd.MOST_ZEROS, 0])
@pytest.mark.parametrize("nesterov", [True, False])
def test_updates_equal_the_formula(nesterov, most_zeros, monkeypatch):
    monkeypatch.setattr(sgd, "MOST_ZEROS", most_zeros)
    rng = np.random.default_rng(0)
    values = {
        "conv.weight": rng.standard_normal((2, 3, 1, 1)),
        "bn.gamma": rng.standard_normal(2),
        "bn.beta": rng.standard_normal(2),
    }
    parameters = [Parameter(Tensor(value.astype(np.float32)), name=name) for name, value in values.items()]
    optimizer = SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=nesterov)
    assert optimizer.fused == (most_zeros > 0)
    velocity = {name: np.zeros_like(value) for name, value in values.items()}
    rates = {"conv.weight": (0.1, 0.01), "bn.gamma": (0.1, 0.0), "bn.beta": (0.3, 0.0)}
    for momentum in (0.8, 0.0, 0.9):
        gradients = {name: rng.standard_normal(value.shape) for name, value in values.items()}
        optimizer(
            tuple(Tensor((gradients[p.name] * 4).astype(np.float32)) for p in optimizer.parameters),
            scalar(0.25),
            scalar(0.1),
            scalar(0.3),
            scalar(momentum),
        )
        for name, value in values.items():
            lr, decay = rates[name]
            gradient = gradients[name] + decay * value
            velocity[name] = momentum * velocity[name] + gradient
            values[name] = value - lr * (gradient + momentum * velocity[name] if nesterov else velocity[name])
    for parameter in parameters:
        np.testing.assert_allclose(parameter.asnumpy(), values[parameter.name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_schedule_warms_up_and_decays(decay):
    schedule = WarmupDecay(0.01, 0.937, total_updates=100, warmup_updates=10, decay=decay, final_factor=0.1)

    def at(update):
        return [float(value.asnumpy()) for value in schedule(Tensor(update, ms.int32))]

    def decayed(update):
        left = 1 - update / 100 if decay == "linear" else (1 + math.cos(math.pi * update / 100)) / 2
        return 0.01 * (0.1 + 0.9 * left)

    assert at(0) == pytest.approx([0.0, 0.1, 0.8], abs=1e-7)
    assert at(5) == pytest.approx([decayed(5) / 2, (0.1 + decayed(5)) / 2, (0.8 + 0.937) / 2], rel=1e-5)
    assert at(10) == pytest.approx([decayed(10), decayed(10), 0.937], rel=1e-5)
    assert at(60) == pytest.approx([decayed(60), decayed(60), 0.937], rel=1e-5)
    assert at(100)[0] == pytest.approx(0.001, rel=1e-5)
    assert at(500)[0] == pytest.approx(0.001, rel=1e-5)  # stays at its end


def test_decay_steps_once_an_epoch():
    schedule = WarmupDecay(0.01, 0.9, total_updates=40, warmup_updates=0, final_factor=0.0, updates_per_step=10)
    rates = [float(schedule(Tensor(update, ms.int32))[0].asnumpy()) for update in (0, 9, 10, 29, 39)]
    assert rates == pytest.approx([0.01, 0.01, 0.0075, 0.005, 0.0025], rel=1e-5)


def test_schedule_without_warmup_starts_at_the_full_rate():
    schedule = WarmupDecay(0.01, 0.9, total_updates=10, warmup_updates=0, final_factor=1.0)
    assert [float(v.asnumpy()) for v in schedule(Tensor(0, ms.int32))] == pytest.approx([0.01, 0.01, 0.9])


def test_average_follows_the_ramp_and_starts_as_a_copy():
    network, average_network = nn.BatchNorm2d(2), nn.BatchNorm2d(2)
    network.gamma.set_data(Tensor(np.array([2.0, 3.0], np.float32)))
    average_network.update_parameters_name("ema.")
    average = ExponentialMovingAverage(network, average_network, decay=0.99, tau=5.0)
    np.testing.assert_array_equal(average_network.gamma.asnumpy(), [2.0, 3.0])
    expected = np.array([2.0, 3.0])
    for update in range(1, 4):
        value = np.array([1.0, 5.0]) * update
        network.gamma.set_data(Tensor(value.astype(np.float32)))
        average(Tensor(update, ms.int32))
        share = 0.99 * (1 - math.exp(-update / 5.0))
        expected = share * expected + (1 - share) * value
    np.testing.assert_allclose(average_network.gamma.asnumpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(network.gamma.asnumpy(), [3.0, 15.0])  # the source is only read
    np.testing.assert_allclose(average_network.moving_variance.asnumpy(), [1.0, 1.0])
