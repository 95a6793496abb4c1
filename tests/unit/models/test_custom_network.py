"""Anybody's cell as a classifier, MindCV's networks, and names of weights with prefixes."""

from __future__ import annotations

import sys
import types
from functools import partial

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from msrun_cli.common.errors import CheckpointError, ConfigError
from msrun_cli.models.cifar_resnet import CifarResNet
from msrun_cli.models.custom import CustomClassifier, mindcv_classifier
from msrun_cli.models.weights import assign_weights


class Small(nn.Cell):
    def __init__(self, num_classes, width=4):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)
        self.fc = nn.Dense(width, num_classes)

    def construct(self, x):
        return self.fc(self.conv(x).mean(axis=(2, 3)))


def arrays_of(network, skip=""):
    return {name.removeprefix(skip): np.ones(p.shape, np.float32) for name, p in network.parameters_and_names()}


@pytest.fixture(autouse=True)
def pynative():
    ms.set_context(mode=ms.PYNATIVE_MODE)


def test_the_cell_gets_normalised_maps_and_gives_logits():
    network = CustomClassifier(5, partial(Small, width=6), mean=[0, 0, 0], std=[255, 255, 255])
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
    expected = network.cell(Tensor((images / 255).transpose(0, 3, 1, 2).astype(np.float32))).asnumpy()
    np.testing.assert_allclose(network(Tensor(images)).asnumpy(), expected, rtol=1e-4, atol=1e-6)
    assert expected.shape == (2, 5)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (Small(3), "_partial_: true"),
        (lambda classes: None, "cannot be made"),
        (lambda num_classes: num_classes, "no mindspore.nn.Cell"),
    ],
)
def test_what_is_no_cell(cell, words):
    with pytest.raises(ConfigError, match=words):
        CustomClassifier(3, cell)


@pytest.mark.parametrize("prefix", ["", "module.", "model.module.", "cell."])
def test_weights_of_the_cell_alone_fit_with_and_without_prefixes(prefix):
    network = CustomClassifier(5, Small, head=["fc."])
    arrays = {prefix + name: array for name, array in arrays_of(network, "cell.").items()}
    report = assign_weights(network, arrays, "file", network.head_prefixes)
    assert len(report.loaded) == len(arrays) and not report.fresh
    assert (network.cell.conv.weight.asnumpy() == 1).all()


def test_head_of_another_number_of_classes_stays_fresh():
    network = CustomClassifier(5, Small, head=["fc."])
    arrays = arrays_of(CustomClassifier(9, Small), "cell.")
    report = assign_weights(network, arrays, "file", network.head_prefixes)
    assert report.fresh == ("cell.fc.weight", "cell.fc.bias")
    with pytest.raises(CheckpointError, match="cell.fc.weight"):
        assign_weights(network, arrays, "file")


def test_names_of_pytorch_behind_a_prefix():
    network = CifarResNet(10, 8)
    torch = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
    arrays = {}
    for name, array in arrays_of(network).items():
        stem, _, last = name.rpartition(".")
        arrays[f"module.{stem}.{torch.get(last, last)}"] = array
    assert len(assign_weights(network, arrays, "file").loaded) == len(arrays)


def test_missing_mindcv_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mindcv", None)
    with pytest.raises(ConfigError, match=r"pip install 'msrun-cli\[mindcv\]'"):
        mindcv_classifier(10, "resnet50")


def test_mindcv_makes_the_network_and_names_similar_ones(monkeypatch):
    made = {}

    def create_model(name, num_classes, pretrained):
        made.update(name=name, pretrained=pretrained)
        return Small(num_classes)

    fake = types.SimpleNamespace(
        is_model=lambda name: name == "small", list_models=lambda pattern: ["small"], create_model=create_model
    )
    monkeypatch.setitem(sys.modules, "mindcv", fake)
    assert mindcv_classifier(4, "small").cell.fc.out_channels == 4
    assert made == {"name": "small", "pretrained": False}
    with pytest.raises(ConfigError, match="no network 'smal'.*Similar: small"):
        mindcv_classifier(4, "smal")
