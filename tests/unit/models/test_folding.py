from __future__ import annotations

from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from msrun_cli.engine.amp import apply_amp
from msrun_cli.models.cifar_resnet import CifarResNet
from msrun_cli.models.folding import Bias, Folding, is_foldable
from msrun_cli.models.resnet import ResNet
from msrun_cli.models.yolov5.network import YOLOv5

NETWORKS: dict[str, Callable[[], nn.Cell]] = {
    "yolov5": lambda: YOLOv5(3, 0.33, 0.125),
    "resnet18": lambda: ResNet(4, 18),
    "resnet50": lambda: ResNet(4, 50),
    "cifar": lambda: CifarResNet(4, 8),
}


def trained(build: Callable[[], nn.Cell], seed: int = 0) -> nn.Cell:
    """A network whose BatchNorms have statistics and weights like after training."""
    rng = np.random.default_rng(seed)
    network = build()
    for name, parameter in network.parameters_and_names():
        last = name.split(".")[-1]
        low, high = {"moving_variance": (0.3, 2), "gamma": (0.5, 1.5), "moving_mean": (-1, 1), "beta": (-1, 1)}.get(
            last, (0, 0)
        )
        if high:
            parameter.set_data(Tensor(rng.uniform(low, high, parameter.shape).astype(np.float32)))
    return network.set_train(False)


def outputs(network: nn.Cell, images: Tensor) -> np.ndarray:
    found = network(images)
    return np.concatenate([item.asnumpy().ravel() for item in (found if isinstance(found, tuple) else (found,))])


def images() -> Tensor:
    return Tensor(np.random.default_rng(9).integers(0, 256, (2, 64, 64, 3), np.uint8))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_folded_network_gives_the_same(name: str) -> None:
    network, folded = trained(NETWORKS[name]), NETWORKS[name]().set_train(False)
    assert is_foldable(network)
    folding = Folding(network, folded)
    folding.refresh()
    assert not any(isinstance(cell, nn.BatchNorm2d) for _, cell in folded.cells_and_names())
    assert any(isinstance(cell, nn.BatchNorm2d) for _, cell in network.cells_and_names())
    wanted = outputs(network, images())
    assert wanted.std() > 1e-3
    np.testing.assert_allclose(outputs(folded, images()), wanted, atol=1e-4 * np.abs(wanted).max())


def test_refresh_follows_the_source() -> None:
    network, folded = trained(NETWORKS["cifar"]), NETWORKS["cifar"]().set_train(False)
    folding = Folding(network, folded)
    folding.refresh()
    before = outputs(folded, images())
    for parameter in network.get_parameters():
        parameter.set_data(parameter.value() * 1.1)
    folding.refresh()
    wanted = outputs(network, images())
    assert np.abs(wanted - before).max() > 1e-2
    np.testing.assert_allclose(outputs(folded, images()), wanted, atol=1e-4 * np.abs(wanted).max())


def test_the_source_stays_as_it_was() -> None:
    network = trained(NETWORKS["resnet18"])
    before = {item.name: item.asnumpy() for item in network.get_parameters()}
    Folding(network, NETWORKS["resnet18"]()).refresh()
    after = {item.name: item.asnumpy() for item in network.get_parameters()}
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_a_folded_network_in_half_precision(level: str) -> None:
    network = trained(NETWORKS["yolov5"])
    wanted = outputs(network, images())
    folded = NETWORKS["yolov5"]()
    folding = Folding(network, folded)
    half = apply_amp(folded, level, "float16")
    half.set_train(False)
    folding.refresh()
    assert {item.dtype for item in folded.get_parameters()} == {ms.float32}
    found = outputs(half, images())
    assert found.dtype == np.float32 and 1e-7 < np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


def test_a_network_without_pairs_is_left_alone() -> None:
    network = nn.SequentialCell([nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)])
    assert not is_foldable(network)
    Folding(network, nn.SequentialCell([nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)])).refresh()
    assert not any(isinstance(cell, Bias) for _, cell in network.cells_and_names())
