"""ResNets against plain numpy, and their sizes."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from numpy_network import resnet

from msrun_cli.common.errors import ConfigError
from msrun_cli.losses.cross_entropy import CrossEntropy
from msrun_cli.models.cifar_resnet import CifarResNet
from msrun_cli.models.normalize import MEAN, STD, NormalizeImage
from msrun_cli.models.resnet import LAYOUTS, ResNet


def size(network) -> int:
    return sum(parameter.size for parameter in network.trainable_params())


@pytest.fixture(autouse=True)
def pynative():
    ms.set_context(mode=ms.PYNATIVE_MODE)


@pytest.mark.parametrize(
    ("depth", "parameters"),
    [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032), (101, 44_549_160), (152, 60_192_808)],
)
def test_parameter_counts(depth, parameters):
    assert size(ResNet(1000, depth)) == parameters


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (56, 853_018)])
def test_parameter_counts_for_small_pictures(depth, parameters):
    assert size(CifarResNet(10, depth)) == parameters


@pytest.mark.parametrize("depth", [18, 50])
def test_forward_loss_and_gradients_equal_numpy(depth):
    ms.set_seed(1)
    rng = np.random.default_rng(depth)
    network = ResNet(7, depth)
    for parameter in network.trainable_params():  # gamma and beta are 1 and 0, which would hide a mistake
        if parameter.name.endswith(("gamma", "beta")):
            value = parameter.asnumpy() + 0.2 * rng.standard_normal(parameter.shape)
            parameter.set_data(Tensor(value.astype(np.float32)))
    images = rng.integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    labels = np.array([1, 6, 0], np.int32)
    loss = CrossEntropy(7)
    network.set_train(True)
    passed: list[np.ndarray] = []
    for _, cell in network.cells_and_names():
        if isinstance(cell, nn.ReLU):
            cell.register_forward_hook(lambda cell, inputs, output: passed.append(output.asnumpy() > 0))

    def forward(x, y):
        logits = network(x)
        return loss(logits, y)[0], logits

    weights = network.trainable_params()
    (value, logits), gradients = ms.value_and_grad(forward, None, weights, has_aux=True)(Tensor(images), Tensor(labels))

    bottleneck, counts = LAYOUTS[depth]
    x = ((images - np.array(MEAN)) / np.array(STD)).transpose(0, 3, 1, 2)
    parameters = {parameter.name: parameter.asnumpy() for parameter in weights}
    expected_logits, expected_loss, expected = resnet(parameters, x, labels, counts, bottleneck, passed)
    np.testing.assert_allclose(logits.asnumpy(), expected_logits, rtol=2e-3, atol=2e-3)
    assert float(value.asnumpy()) == pytest.approx(expected_loss, rel=1e-3)
    assert set(expected) == set(parameters)
    errors = {}
    for parameter, gradient in zip(weights, gradients, strict=True):
        wanted = expected[parameter.name]
        errors[parameter.name] = np.linalg.norm(gradient.asnumpy() - wanted) / np.linalg.norm(wanted)
    assert max(errors.values()) <= 1e-3, errors


def test_stride_of_the_bottleneck_is_on_its_3x3_convolution():
    block = ResNet(10, 50).layer2[0]
    assert (block.conv1.stride, block.conv2.stride, block.conv2.kernel_size) == ((1, 1), (2, 2), (3, 3))


def test_start_has_the_published_variance():
    weight = ResNet(10, 50).layer3[1].conv2.weight.asnumpy()
    assert weight.std() == pytest.approx(np.sqrt(2 / (256 * 9)), rel=0.02)


@pytest.mark.parametrize("zero", [False, True])
def test_last_gamma_of_a_block(zero):
    gamma = ResNet(10, 18, zero_init_last_gamma=zero).layer1[0].bn2.gamma.asnumpy()
    assert (gamma == (0 if zero else 1)).all()


def test_shortcut_of_the_small_network_takes_every_second_pixel_and_pads_channels():
    block = CifarResNet(10, 20).layer2[0]
    block.set_train(False)
    block.bn2.gamma.set_data(Tensor(np.zeros(32, np.float32)))  # what is left is the shortcut
    x = np.abs(np.random.default_rng(0).standard_normal((2, 16, 8, 8))).astype(np.float32)
    y = block(Tensor(x)).asnumpy()
    assert y.shape == (2, 32, 4, 4)
    np.testing.assert_array_equal(y[:, 8:24], x[:, :, ::2, ::2])
    assert not y[:, :8].any() and not y[:, 24:].any()
    gradient = ms.grad(lambda value: block(value).sum())(Tensor(x)).asnumpy()
    expected = np.zeros_like(x)
    expected[:, :, ::2, ::2] = x[:, :, ::2, ::2] > 0
    np.testing.assert_array_equal(gradient, expected)


def test_normalisation_takes_bytes_or_what_the_host_normalised():
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 3), dtype=np.uint8)
    expected = ((images - np.array(MEAN)) / np.array(STD)).transpose(0, 3, 1, 2)
    cell = NormalizeImage()
    on_device = cell(Tensor(images)).asnumpy()
    np.testing.assert_allclose(on_device, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(cell(Tensor(on_device)).asnumpy(), on_device)


@pytest.mark.parametrize("make", [lambda: ResNet(10, 51), lambda: CifarResNet(10, 21), lambda: CifarResNet(10, 2)])
def test_unknown_depth(make):
    with pytest.raises(ConfigError, match="depth"):
        make()
