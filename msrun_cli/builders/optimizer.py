"""The optimizer with the rates and weight decays of its groups and layers."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from hydra.utils import get_object
from mindspore import nn

from msrun_cli.builders.nodes import instantiate, optional
from msrun_cli.common.errors import ConfigError
from msrun_cli.config.schema import TrainConfig
from msrun_cli.optim.layer_decay import NamedGroup, layers_of, parameter_settings
from msrun_cli.optim.parameter_groups import ParameterSetting

log = logging.getLogger("msrun")

GROUP_KEYS = ("layer_decay", "groups")  # of the optimizer node; the rest are the optimizer's arguments


def build_optimizer(cfg: TrainConfig, network: nn.Cell, accumulate: int) -> nn.Cell:
    """The optimizer over the network's trained parameters. accumulate: batches per update.

    Raises:
        ConfigError: a group fits no parameter, the optimizer knows no groups, or there is no weight decay to scale.
    """
    node: Any = cfg.optimizer
    scale = 1.0 if cfg.nbs is None else cfg.batch_size * accumulate / cfg.nbs
    settings = _settings(node, network, scale)
    arguments = {key: value for key, value in node.items() if key not in GROUP_KEYS}
    objects: dict[str, Any] = {"params": network.trainable_params()}
    if settings:
        _require_groups(node._target_)
        objects["settings"] = settings
    if cfg.nbs is not None:
        objects["weight_decay"] = _weight_decay(node, cfg.nbs) * scale
    # not through _convert_: the parameters are objects, not configuration
    return instantiate(arguments, _partial_=True)(**objects)


def _weight_decay(node: Any, nbs: int) -> float:
    """As configured, else the optimizer's default."""
    declared = inspect.signature(get_object(node._target_)).parameters.get("weight_decay")
    value = optional(node, "weight_decay", declared.default if declared else None)
    if not isinstance(value, (int, float)):
        raise ConfigError(
            f"nbs={nbs} scales the weight decay of {node._target_}, which has none in the configuration. "
            "Set optimizer.weight_decay (0 for none), or nbs=null."
        )
    return float(value)


def _settings(node: Any, network: nn.Cell, decay_scale: float) -> dict[str, ParameterSetting]:
    params, root = network.trainable_params(), getattr(network, "weight_prefix", "")
    groups = {
        str(name): _group(group, decay_scale)
        for name, group in optional(node, "groups", {}).items()
        if group is not None
    }
    layer_decay = optional(node, "layer_decay", None)
    settings = parameter_settings(params, groups, layer_decay, root)
    for name, group in groups.items():
        decay = "that of the optimizer" if group.weight_decay is None else f"{group.weight_decay:g}"
        log.info("optimizer group %s (%s): rate x %g, weight decay %s", name, group.pattern, group.lr_scale, decay)
    if layer_decay is not None:
        layers = layers_of(params, root)
        names = f"{layers[0][0].name} ... {layers[-1][0].name}"
        log.info("layer decay %g over %d layers, %s: rate x %.3g to x 1",
                 layer_decay, len(layers), names, layer_decay ** (len(layers) - 1))  # fmt: skip
    return settings


def _group(node: Any, decay_scale: float) -> NamedGroup:
    decay = optional(node, "weight_decay", None)
    return NamedGroup(
        node.pattern, optional(node, "lr_scale", 1.0), None if decay is None else float(decay) * decay_scale
    )


def _require_groups(target: str) -> None:
    if "settings" not in inspect.signature(get_object(target)).parameters:
        raise ConfigError(
            f"optimizer.groups or optimizer.layer_decay: {target} has no argument `settings` and so only one rate. "
            "Set optimizer.groups={} and optimizer.layer_decay=null, or choose optimizer=sgd, momentum, adamw or lion."
        )
