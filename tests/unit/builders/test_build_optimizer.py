"""From the optimizer's node to groups of parameters."""

from __future__ import annotations

import pytest
from mindspore import nn
from omegaconf import OmegaConf

from msrun_cli.builders.optimizer import build_optimizer
from msrun_cli.common.errors import ConfigError

SGD = {"_target_": "msrun_cli.optim.sgd.SGD", "lr": 0.1, "weight_decay": 0.01}


def network() -> nn.Cell:
    return nn.SequentialCell([nn.Dense(2, 3), nn.Dense(3, 4), nn.Dense(4, 2)])


def build(nbs: int | None = None, **node) -> nn.Cell:
    return build_optimizer(OmegaConf.create({"optimizer": SGD | node, "nbs": nbs, "batch_size": 16}), network(), 2)


def by_name(optimizer: nn.Cell) -> dict[str, tuple]:
    return {
        parameter.name: group[2:] for group in optimizer.groups for parameter in optimizer.parameters[slice(*group[:2])]
    }


def test_groups_and_layer_decay_reach_the_optimizer(caplog):
    groups = {"head": {"pattern": "2.*", "lr_scale": 10, "weight_decay": 0.2}, "off": None}
    with caplog.at_level("INFO", "msrun"):
        found = by_name(build(groups=groups, layer_decay=0.5))
    assert found["0.weight"] == (0.25, False, 1.0, 0.0)
    assert found["1.bias"] == (0.5, True, 0.0, 0.0)
    assert found["2.weight"] == (10.0, False, 0.0, 0.2)
    assert "optimizer group head (2.*): rate x 10, weight decay 0.2" in caplog.text
    assert "layer decay 0.5 over 3 layers, 0.weight ... 2.weight: rate x 0.25 to x 1" in caplog.text


def test_the_nominal_batch_size_scales_all_weight_decays():
    optimizer = build(nbs=64, groups={"head": {"pattern": "2.*", "weight_decay": 0.2}})
    assert optimizer.weight_decay == pytest.approx(0.005)  # 16 x 2 of 64 images
    assert optimizer.decays == pytest.approx([0.005, 0.1, 0.0, 0.0])  # weights, biases, of the head each last
    assert by_name(optimizer)["2.weight"][3] == pytest.approx(0.1)


@pytest.mark.parametrize("given", [{"weight_decay": None}, {"_target_": "mindspore.nn.Momentum", "momentum": 0.9}])
def test_a_nominal_batch_size_without_a_weight_decay_is_refused(given):
    node = {key: value for key, value in SGD.items() if key != "weight_decay"} | given
    with pytest.raises(ConfigError, match="nbs=64 scales the weight decay.*Set optimizer.weight_decay"):
        build_optimizer(OmegaConf.create({"optimizer": node, "nbs": 64, "batch_size": 16}), network(), 2)


def test_plain_settings_make_one_group_of_each_kind():
    assert len(build().groups) == 2  # weights and biases: these layers have no norms
    assert len(build(groups={}, layer_decay=None).groups) == 2


def test_an_optimizer_without_groups_is_refused():
    target = "mindspore.nn.optim.sgd.SGD"
    with pytest.raises(ConfigError, match="mindspore.nn.optim.sgd.SGD has no argument `settings`"):
        build(_target_=target, layer_decay=0.5)
