"""What freezing keeps, what it says to wrong patterns, and that gradients still pass through what is frozen."""

from __future__ import annotations

from collections import OrderedDict

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from msrun_cli.common.errors import ConfigError
from msrun_cli.engine.checkpoint import training_parameters
from msrun_cli.engine.loss_scale import make_loss_scale
from msrun_cli.engine.train_step import TrainStep
from msrun_cli.models.batch_norm import LARGE_MAP_PIXELS, BatchNorm2d
from msrun_cli.models.freezing import freeze
from msrun_cli.models.resnet import ResNet
from msrun_cli.optim.ema import ExponentialMovingAverage
from msrun_cli.optim.schedule import WarmupDecay
from msrun_cli.optim.sgd import SGD


class Small(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, has_bias=True)
        self.norm = BatchNorm2d(4, 1e-3, 0.9)
        self.body = nn.Conv2d(4, 4, 3)
        self.body_norm = BatchNorm2d(4, 1e-3, 0.9)
        self.head = nn.Dense(4, 2)

    def construct(self, x):
        x = self.norm(self.stem(x))
        return self.head(self.body_norm(self.body(x)).mean(axis=(2, 3)))


class SquaredError(nn.Cell):
    def construct(self, outputs, targets):
        value = ops.square(outputs - targets).mean()
        return value, value.reshape(1)


def values(cells) -> dict[str, np.ndarray]:
    return {parameter.name: parameter.asnumpy().copy() for cell in cells for parameter in cell.get_parameters()}


def test_what_is_frozen_keeps_every_bit():
    ms.set_context(mode=ms.GRAPH_MODE)
    network, average_network = Small(), Small()
    average_network.update_parameters_name("ema.")
    found = freeze(network, ["stem.*", "norm.*"])
    assert (found.norms, found.trained, len(found.names)) == (1, 5, 4)
    average = ExponentialMovingAverage(network, average_network, 0.99, 2.0)
    step = TrainStep(
        network,
        SquaredError(),
        SGD(network.trainable_params(), lr=0.1, weight_decay=0.1),
        WarmupDecay(0.1, 0.9, 10, 0),
        make_loss_scale("none", 1.0, 2.0, 1),
        average,
    )
    step.set_train(True)
    before = values([network, average_network])
    rng = np.random.default_rng(0)
    for _ in range(3):
        images = rng.standard_normal((4, 3, 8, 8)).astype(np.float32)
        step(Tensor(images), Tensor(np.ones((4, 2), np.float32)))
    after = values([network, average_network])
    for name, value in after.items():
        frozen = name.removeprefix("ema.").startswith(("stem.", "norm."))
        assert np.array_equal(value, before[name]) == frozen, name

    saved = {parameter.name for parameter in training_parameters(network, average_network, step)}
    assert {"stem.weight", "ema.stem.weight", "norm.moving_mean", "velocity.head.weight"} <= saved
    assert not [name for name in saved if name.startswith(("velocity.stem", "velocity.norm"))]


@pytest.mark.parametrize("side", [6, 64])
def test_gradients_pass_through_a_frozen_norm(side):
    """It is gamma * (x - mean) / sqrt(variance + eps) + beta with constants; 64 x 64 is a large map."""
    assert (64 * 64 >= LARGE_MAP_PIXELS) and (6 * 6 < LARGE_MAP_PIXELS)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    norm = BatchNorm2d(2, 1e-3, 0.9)
    for name, value in (("gamma", [2, 3]), ("beta", [1, 0]), ("moving_mean", [0.5, -1]), ("moving_variance", [4, 9])):
        getattr(norm, name).set_data(Tensor(np.array(value, np.float32)))
    network = nn.SequentialCell([nn.Conv2d(2, 2, 1), norm])
    freeze(network, ["1.*"])
    network.set_train(True)
    x = Tensor(np.random.default_rng(0).standard_normal((3, 2, side, side)).astype(np.float32))
    scale = np.array([2, 3]) / np.sqrt(np.array([4, 9]) + 1e-3)
    y, gradient = ms.value_and_grad(lambda x: (norm(x) ** 2).sum())(x)
    expected = scale.reshape(1, 2, 1, 1) * (x.asnumpy() - np.array([0.5, -1]).reshape(1, 2, 1, 1))
    expected = expected + np.array([1, 0]).reshape(1, 2, 1, 1)
    np.testing.assert_allclose(float(y.asnumpy()), np.square(expected).sum(), rtol=1e-4)
    np.testing.assert_allclose(gradient.asnumpy(), 2 * expected * scale.reshape(1, 2, 1, 1), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(norm.moving_mean.asnumpy(), np.array([0.5, -1], np.float32))


def test_a_pattern_that_fits_nothing_names_what_is_near():
    with pytest.raises(
        ConfigError, match=r"freeze=\[layr1.\*\].*Did you mean 'layer1.\*'\? There are conv1.\*, bn1.\*"
    ):
        freeze(ResNet(3, 18), ["layr1.*"])
    with pytest.raises(ConfigError, match=r"Did you mean 'layer1.\*'"):
        freeze(ResNet(3, 18), ["layer1"])  # no wildcard: the name of no parameter
    with pytest.raises(ConfigError, match=r"There are 0.conv.\*, 0.norm.\*; a name in full is 0.conv.weight"):
        freeze(
            nn.SequentialCell([nn.SequentialCell(OrderedDict(conv=nn.Conv2d(1, 1, 1), norm=nn.BatchNorm2d(1)))]), ["x"]
        )
    with pytest.raises(ConfigError, match="no trained parameter"):
        freeze(Small(), ["norm.moving_mean"])


def test_nothing_left_to_train():
    with pytest.raises(ConfigError, match="nothing is left to train"):
        freeze(Small(), ["*"])


def test_a_norm_whose_bias_is_trained_still_takes_batch_statistics():
    network = Small()
    assert freeze(network, ["*.gamma"]).norms == 0
    assert network.norm.use_batch_statistics is None
