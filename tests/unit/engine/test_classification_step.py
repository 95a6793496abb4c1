"""A classifier in the same train step: loss scale, accumulation and workers do not change what is learnt."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from msrun_cli.engine.loss_scale import make_loss_scale
from msrun_cli.engine.train_step import TrainStep
from msrun_cli.losses.cross_entropy import CrossEntropy
from msrun_cli.models.normalize import NormalizeImage
from msrun_cli.optim.adamw import AdamW
from msrun_cli.optim.ema import NoAverage
from msrun_cli.optim.lion import Lion
from msrun_cli.optim.schedule import OneCycle, WarmupDecay
from msrun_cli.optim.sgd import SGD


class Tiny(nn.Cell):
    """No BatchNorm, so that accumulation equals a larger batch."""

    def __init__(self):
        super().__init__()
        self.normalize = NormalizeImage()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, has_bias=True)
        self.relu = nn.ReLU()
        self.fc = nn.Dense(8, 3)

    def construct(self, images):
        return self.fc(self.relu(self.conv(self.normalize(images))).mean(axis=(2, 3)))


RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (32, 8, 8, 3), dtype=np.uint8)
LABELS = RNG.integers(3, size=32).astype(np.int32)
START = {
    name: (0.3 * RNG.standard_normal(parameter.shape)).astype(np.float32)
    for name, parameter in Tiny().parameters_and_names()
}


def trained(labels=LABELS, batch_size=32, scale=1.0, optimizer=SGD, schedule=None, smoothing=0.1):
    """Weights after three updates on the same 32 pictures."""
    ms.set_context(mode=ms.GRAPH_MODE)
    network = Tiny()
    for name, parameter in network.parameters_and_names():
        parameter.set_data(Tensor(START[name]))
    step = TrainStep(
        network,
        CrossEntropy(3, smoothing),
        optimizer(network.trainable_params(), lr=0.05, momentum=0.9, weight_decay=1e-3),
        schedule or WarmupDecay(0.05, 0.9, 10, 2, warmup_bias_lr=None, warmup_momentum=None),
        make_loss_scale("fixed", scale, 2.0, 100),
        NoAverage(),
        clip_norm=1.0,
        accumulate=32 // batch_size,
    )
    step.set_train(True)
    losses = []
    for _ in range(3):
        for start in range(0, 32, batch_size):
            part = slice(start, start + batch_size)
            losses.append(float(step(Tensor(IMAGES[part]), Tensor(labels[part]))[0].asnumpy()))
    return {parameter.name: parameter.asnumpy() for parameter in network.trainable_params()}, losses


@pytest.fixture(scope="module")
def expected():
    return trained()[0]


def assert_same(found, expected, rtol=1e-5):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=1e-6, err_msg=name)


def test_loss_scale_does_not_change_the_update(expected):
    assert_same(trained(scale=1024.0)[0], expected)


def test_four_batches_of_eight_equal_one_of_thirty_two(expected):
    assert_same(trained(batch_size=8)[0], expected, rtol=1e-4)


def test_class_probabilities_equal_their_labels(expected):
    assert_same(trained(labels=np.eye(3, dtype=np.float32)[LABELS])[0], expected)


@pytest.mark.parametrize("optimizer", [AdamW, Lion])
def test_other_optimizers_learn_with_one_cycle(optimizer):
    weights, losses = trained(optimizer=optimizer, schedule=OneCycle(0.05, 0.9, 3, 1))
    assert losses[-1] < losses[0]
    assert all(np.isfinite(value).all() for value in weights.values())
