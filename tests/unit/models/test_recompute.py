"""Blocks that run again in the backward pass: the same weights, statistics and losses as without."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from msrun_cli.builders.training import use_kernels
from msrun_cli.engine.amp import apply_amp
from msrun_cli.engine.loss_scale import make_loss_scale
from msrun_cli.engine.train_step import TrainStep
from msrun_cli.models.batch_norm import BatchNorm2d
from msrun_cli.models.custom import CustomClassifier
from msrun_cli.models.recompute import recompute_blocks
from msrun_cli.models.resnet import ResNet
from msrun_cli.models.yolov5.network import YOLOv5
from msrun_cli.optim.ema import NoAverage
from msrun_cli.optim.schedule import WarmupDecay
from msrun_cli.optim.sgd import SGD


class Block(nn.Cell):
    activates = (("norm", "relu"),)

    def __init__(self, channels_in: int) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(channels_in, 4, 3), BatchNorm2d(4, 1e-5, 0.9), nn.ReLU()

    def construct(self, x):
        return self.relu(self.norm(self.conv(x)))


class Small(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.SequentialCell([Block(3), Block(4), Block(4)])
        self.head = nn.Dense(4, 2)

    def construct(self, x):
        return self.head(self.blocks(x).mean(axis=(2, 3)))


class SquaredError(nn.Cell):
    def construct(self, outputs, targets):
        value = ops.square(outputs.astype("float32") - targets).mean()
        return value, value.reshape(1)


def trained(
    recomputed: bool, amp: str, last_is_bad: bool, kernels: Path | None
) -> tuple[dict[str, np.ndarray], list[float]]:
    network = Small()
    rng = np.random.default_rng(0)
    for parameter in network.trainable_params():
        parameter.set_data(Tensor((0.3 * rng.standard_normal(parameter.shape)).astype(np.float32)))
    optimizer = SGD(network.trainable_params(), lr=0.1)
    if kernels is not None:
        use_kernels(amp, network, optimizer, kernels)
    amp_network = apply_amp(network, amp, "float16")
    if recomputed:
        assert recompute_blocks(network) == ["blocks.0", "blocks.1"]
    step = TrainStep(
        amp_network,
        SquaredError(),
        optimizer,
        WarmupDecay(0.1, 0.9, 10, 0),
        make_loss_scale("none", 1.0, 2.0, 1),
        NoAverage(),
        recomputed=recomputed,
        kernels=kernels,
    )
    step.set_train(True)
    losses = []
    for index in range(3):
        images = Tensor(rng.standard_normal((4, 3, 8, 8)).astype(np.float32))
        target = np.inf if last_is_bad and index == 2 else 1.0
        losses.append(float(step(images, Tensor(np.full((4, 2), target, np.float32)))[0].asnumpy()))
    return {parameter.name: parameter.asnumpy() for parameter in network.get_parameters()}, losses


@pytest.mark.parametrize(
    ("mode", "amp", "last_is_bad"),
    [(ms.GRAPH_MODE, "O2", False), (ms.PYNATIVE_MODE, "O0", False), (ms.PYNATIVE_MODE, "O0", True)],
    ids=["graph", "pynative", "skipped step"],
)
def test_nothing_changes(mode, amp, last_is_bad):
    assert_nothing_changes(mode, amp, last_is_bad, None)


@pytest.mark.parametrize(
    ("mode", "last_is_bad"),
    [(ms.GRAPH_MODE, False), (ms.GRAPH_MODE, True), (ms.PYNATIVE_MODE, False)],
    ids=["graph", "skipped step", "pynative"],
)
def test_nothing_changes_with_kernels(mode, last_is_bad, library):
    assert_nothing_changes(mode, "O0", last_is_bad, library)


def assert_nothing_changes(mode, amp, last_is_bad, kernels):
    ms.set_context(mode=mode)
    expected, losses = trained(False, amp, last_is_bad, kernels)
    found, recomputed_losses = trained(True, amp, last_is_bad, kernels)
    assert recomputed_losses == losses
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    assert abs(found["blocks.0.norm.moving_mean"]).max() > 0


def test_without_setting_back_the_statistics_would_move_twice():
    """What makes the above necessary; when it fails, MindSpore has changed and the copies can go."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    means = []
    for recomputed in (False, True):
        block = Block(3)
        block.conv.weight.set_data(ops.ones_like(block.conv.weight))
        block.set_train(True)
        if recomputed:
            block.recompute()
        ms.grad(lambda x, block=block: block(x).sum(), None, block.trainable_params())(ops.ones((1, 3, 4, 4)))
        means.append(block.norm.moving_mean.asnumpy())
    np.testing.assert_allclose(means[1], 1.9 * means[0], rtol=1e-4)


class Plain(nn.Cell):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.first, self.relu, self.second = nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, num_classes)


def test_blocks_of_the_networks():
    assert recompute_blocks(ResNet(3, 18))[0] == "layer1.0" and len(recompute_blocks(ResNet(3, 18))) == 7
    found = recompute_blocks(YOLOv5(3, 0.33, 0.25))
    assert found[0] == "model.0" and found[-1] == "model.23" and "model.11" not in found  # that one has no weights
    assert recompute_blocks(CustomClassifier(2, Plain)) == ["cell.first"]
