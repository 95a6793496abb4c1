"""Own rates and weight decays of groups, and rates that fall from layer to layer."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from msrun_cli.common.errors import ConfigError
from msrun_cli.models.cifar_resnet import CifarResNet
from msrun_cli.models.custom import CustomClassifier
from msrun_cli.models.resnet import ResNet
from msrun_cli.models.yolov5.network import YOLOv5
from msrun_cli.optim.adamw import AdamW
from msrun_cli.optim.layer_decay import NamedGroup, layer_scales, layers_of, parameter_settings
from msrun_cli.optim.lion import Lion
from msrun_cli.optim.parameter_groups import ParameterSetting, arranged
from msrun_cli.optim.sgd import SGD

SHAPES = {"a.weight": (2, 2), "a.bias": (2,), "n.gamma": (2,), "b.weight": (2, 2), "b.bias": (2,)}
SETTINGS = {
    "a.weight": ParameterSetting(0.5, 0.3),
    "a.bias": ParameterSetting(0.5, 0.3),
    "n.gamma": ParameterSetting(2.0),
}
RATE, BIAS_RATE = 0.1, 0.7


def parameters() -> list[Parameter]:
    rng = np.random.default_rng(0)
    return [
        Parameter(Tensor(rng.standard_normal(shape).astype(np.float32)), name=name) for name, shape in SHAPES.items()
    ]


def names_of(layers) -> list[str]:
    """First and last name of each layer, without the kind of parameter."""
    return [f"{layer[0].name.rpartition('.')[0]}..{layer[-1].name.rpartition('.')[0]}" for layer in layers]


def test_groups_hold_each_parameter_once_and_norms_and_biases_have_no_decay():
    ordered, groups = arranged(parameters(), SETTINGS)
    assert [parameter.name for parameter in ordered] == ["a.weight", "b.weight", "n.gamma", "a.bias", "b.bias"]
    assert groups == (
        (0, 1, 0.5, False, 0.0, 0.3),
        (1, 2, 1.0, False, 1.0, 0.0),
        (2, 3, 2.0, False, 0.0, 0.0),
        (3, 4, 0.5, True, 0.0, 0.0),
        (4, 5, 1.0, True, 0.0, 0.0),
    )


@pytest.mark.parametrize("kind", [SGD, AdamW, Lion])
@pytest.mark.parametrize("settings", [None, SETTINGS], ids=["alike", "own"])
def test_first_update_with_own_rates(kind, settings):
    """What each optimizer does in its first step from zero moments, with a gradient of one."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    params = parameters()
    before = {parameter.name: parameter.asnumpy().copy() for parameter in params}
    more = {"nesterov": False} if kind is SGD else {}
    optimizer = kind(params, lr=RATE, weight_decay=0.2, settings=settings, **more)
    numbers = (Tensor(value, ms.float32) for value in (1.0, RATE, BIAS_RATE, 0.9))
    optimizer(tuple(Tensor(np.ones(p.shape, np.float32)) for p in optimizer.parameters), *numbers)
    for parameter in params:
        name = parameter.name
        setting = (settings or {}).get(name, ParameterSetting())
        rate = setting.lr_scale * (BIAS_RATE if kind is SGD and name.endswith("bias") else RATE)
        decay = (0.2 if setting.weight_decay is None else setting.weight_decay) if name.endswith("weight") else 0.0
        expected = before[name] - rate * (1.0 + decay * before[name])
        np.testing.assert_allclose(parameter.asnumpy(), expected, rtol=1e-5, atol=2e-6, err_msg=name)


def test_own_rates_in_graph_mode_equal_pynative():
    results = []
    for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
        ms.set_context(mode=mode)
        params = parameters()
        optimizer = SGD(params, lr=RATE, weight_decay=0.2, settings=SETTINGS)
        numbers = [Tensor(value, ms.float32) for value in (1.0, RATE, BIAS_RATE, 0.9)]
        for _ in range(2):
            optimizer(tuple(Tensor(np.ones(p.shape, np.float32)) for p in optimizer.parameters), *numbers)
        results.append([parameter.asnumpy() for parameter in params])
    for first, second in zip(*results, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-6)


def test_the_last_group_that_fits_counts_and_layer_decay_multiplies():
    params = list(ResNet(3, 18).trainable_params())
    groups = {"all": NamedGroup("*", 2.0, 0.1), "head": NamedGroup("fc.*", 10.0)}
    settings = parameter_settings(params, groups, 0.5)
    assert settings["fc.weight"] == ParameterSetting(10.0, None)
    assert settings["layer4.1.conv1.weight"] == ParameterSetting(1.0, 0.1)
    assert settings["conv1.weight"].lr_scale == pytest.approx(2.0 * 0.5**9)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"head": NamedGroup("fcc.*")}, r"optimizer.groups.head.pattern=fcc.\*: no trained.*Did you mean 'fc.\*'"),
        ({"head": NamedGroup("fc.*"), "all": NamedGroup("*")}, "optimizer.groups.head.*groups behind it take all"),
    ],
)
def test_groups_that_have_no_parameter(groups, words):
    with pytest.raises(ConfigError, match=words):
        parameter_settings(ResNet(3, 18).trainable_params(), groups)


def test_layers_of_the_networks():
    resnet = names_of(layers_of(ResNet(3, 18).trainable_params()))
    assert resnet[0] == "conv1..bn1" and resnet[-1] == "fc..fc"
    assert [name.split(".")[0] for name in resnet[1:-1]] == [f"layer{i}" for i in (1, 1, 2, 2, 3, 3, 4, 4)]
    assert len(layers_of(CifarResNet(10, 20).trainable_params())) == 1 + 9 + 1
    yolo = layers_of(YOLOv5(4, 0.33, 0.25).trainable_params())
    assert [layer[0].name.split(".")[1] for layer in yolo] == [*map(str, range(11)), "13", "14", "17", "18", "20", "21",
                                                              "23", "24"]  # fmt: skip
    scales = layer_scales(YOLOv5(4, 0.33, 0.25).trainable_params(), 0.75)
    assert scales["model.24.m.0.bias"] == 1.0
    assert scales["model.23.cv1.conv.weight"] == 0.75
    assert scales["model.0.bn.gamma"] == pytest.approx(0.75**18)


class Plain(nn.Cell):
    """No numbers in its names."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.fc = nn.Dense(4, num_classes)


class Chain(nn.Cell):
    """Stem and head without numbers around numbered blocks, with a norm of its own before the head."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.embed, self.position = nn.Conv2d(3, 4, 3), nn.Dense(4, 4)
        self.blocks = nn.SequentialCell([nn.Dense(4, 4), nn.LayerNorm((4,)), nn.Dense(4, 4)])
        self.norm, self.head = nn.LayerNorm((4,)), nn.Dense(4, num_classes)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (Plain, ["cell.conv1..cell.bn1", "cell.conv2..cell.bn2", "cell.fc..cell.fc"]),
        (
            Chain,
            ["cell.embed..cell.position", "cell.blocks.0..cell.blocks.1", "cell.blocks.2..cell.blocks.2",
             "cell.norm..cell.head"],
        ),
    ],
)  # fmt: skip
def test_layers_of_other_peoples_networks(cell, expected):
    network = CustomClassifier(3, cell)
    assert names_of(layers_of(network.trainable_params(), network.weight_prefix)) == expected
