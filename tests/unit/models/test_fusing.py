"""Networks whose normalisation and activations are kernels give what they gave before."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import ParameterTuple, Tensor, nn, ops

from msrun_cli.kernels.operators import Convolution
from msrun_cli.models.cifar_resnet import CifarResNet
from msrun_cli.models.freezing import freeze
from msrun_cli.models.fusing import KernelConv2d, fuse_norms, use_convolutions
from msrun_cli.models.resnet import ResNet
from msrun_cli.models.sync_batch_norm import synchronize_norms
from msrun_cli.models.yolov5.network import YOLOv5

# network, its norms, the activations that stay (those behind the sums of a ResNet), its convolutions of more than a
# pixel, median relative error of the gradients: each ReLU whose input is next to zero may flip, which moves all before
NETWORKS = {
    "yolov5": (lambda: YOLOv5(3, 0.33, 0.125), 57, 0, 18, 1e-4),
    "resnet18": (lambda: ResNet(3, 18), 20, 8, 17, 1e-3),
    "resnet50": (lambda: ResNet(3, 50), 53, 16, 17, 0.1),
    "cifar_resnet8": (lambda: CifarResNet(3, 8), 7, 3, 7, 1e-3),
}


class Weighted(nn.Cell):
    """A scalar of a network's outputs that depends on each of their numbers in another way."""

    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self.network = network
        self.weights = ParameterTuple(network.trainable_params())

    def value(self, images):
        outputs = self.network(images)
        total = 0.0
        for output in outputs if isinstance(outputs, tuple) else (outputs,):
            total = total + ops.tanh(output).sum()
        return total


def make(name):
    network = NETWORKS[name][0]()
    rng = np.random.default_rng(1)
    for parameter in network.get_parameters():
        if "moving" in parameter.name:
            continue
        value = rng.standard_normal(parameter.shape)
        if parameter.ndim > 1:
            value /= np.sqrt(value[0].size)
        else:
            value = parameter.name.endswith("gamma") + 0.2 * value
        parameter.set_data(Tensor(value.astype(np.float32)))
    return network


@pytest.mark.parametrize("name", list(NETWORKS))
def test_the_same_outputs_gradients_and_statistics(name, library):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    images = Tensor(np.random.default_rng(0).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8))
    plain, fused = make(name), make(name)
    names = [parameter.name for parameter in fused.get_parameters()]
    _, norms, activations, convolutions, tolerance = NETWORKS[name]
    assert fuse_norms(fused, library) == norms
    assert use_convolutions(fused, library) == convolutions
    assert [parameter.name for parameter in fused.get_parameters()] == names
    left = [cell for _, cell in fused.cells_and_names() if isinstance(cell, nn.ReLU)]
    inside = [cell for cell in left if any(cell is norm.activation for norm in with_kernel(fused))]
    assert len(left) - len(inside) == activations
    found = []
    for network in (plain, fused):
        network.set_train(True)
        weighted = Weighted(network)
        gradients = ms.value_and_grad(weighted.value, None, weighted.weights)(images)[1]
        network.set_train(False)
        evaluated = weighted.value(images)
        statistics = [p.asnumpy() for p in network.get_parameters() if "moving" in p.name]
        found.append(([gradient.asnumpy() for gradient in gradients], statistics, float(evaluated.asnumpy())))
    (gradients, statistics, value), (other_gradients, other_statistics, other_value) = found
    for expected, other in zip(statistics, other_statistics, strict=True):
        np.testing.assert_allclose(other, expected, rtol=1e-3, atol=1e-5)
    assert other_value == pytest.approx(value, rel=1e-3)
    errors = [np.linalg.norm(a - b) / np.linalg.norm(a) for a, b in zip(gradients, other_gradients, strict=True)]
    assert np.median(errors) < tolerance


def with_kernel(network):
    return [cell for _, cell in network.cells_and_names() if getattr(cell, "has_kernel", False)]


def test_norms_that_stand_still_or_look_at_other_devices_are_left_alone(library, monkeypatch):
    frozen = ResNet(3, 18)
    freeze(frozen, ["layer1.*"])
    assert fuse_norms(frozen, library) == 20 - 4
    assert not with_kernel(frozen.layer1)
    monkeypatch.setattr("msrun_cli.models.sync_batch_norm.ops.AllReduce", lambda: lambda values: values * 2)
    synchronized = ResNet(3, 18)
    synchronize_norms(synchronized, 2, "CPU")
    assert fuse_norms(synchronized, library) == 0


class Folded(nn.SequentialCell):
    folds = (("0", "1"),)


def test_convolutions_of_other_networks_are_left_alone(library):
    assert use_convolutions(nn.SequentialCell(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1)), library) == 0


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({}, True),
        ({"kernel_size": 1, "padding": 0}, False),
        ({"group": 2}, False),
        ({"dilation": 2}, False),
        ({"has_bias": True}, False),
        ({"pad_mode": "same", "padding": 0}, False),
        ({"kernel_size": (3, 5)}, False),
        ({"stride": (1, 2)}, False),
        ({"padding": (1, 1, 0, 0)}, False),
        ({"padding": (1, 1, 1, 1)}, True),
    ],
    ids=str,
)
def test_convolutions_that_a_kernel_knows(settings, fits, library):
    settings = {"kernel_size": 3, "pad_mode": "pad", "padding": 1, "has_bias": False, **settings}
    network = Folded(nn.Conv2d(4, 6, **settings))
    weight = network[0].weight
    assert use_convolutions(network, library) == fits
    assert isinstance(network[0], KernelConv2d) == fits and network[0].weight is weight


def test_small_maps_keep_their_operator(library, monkeypatch):
    ms.set_context(mode=ms.PYNATIVE_MODE)
    network = Folded(nn.Conv2d(3, 4, 3, pad_mode="pad", padding=1))
    use_convolutions(network, library)
    called, plain = [], network[0].plain
    monkeypatch.setattr(Convolution, "construct", lambda self, x, w: called.append(True) or plain(x, w))
    network(ops.ones((1, 3, 10, 10)))
    assert not called
    network(ops.ones((1, 3, 20, 20)))
    assert called
