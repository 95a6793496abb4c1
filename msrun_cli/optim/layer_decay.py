"""Learning rates that fall from the last layer of a network to the first, and those of named groups.

Layer decay is the rule of ELECTRA (Clark et al. 2020, appendix A) and BEiT (Bao et al. 2021, appendix): the last layer
has the rate of the schedule, each layer before it that of the next one times a factor below 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mindspore import Parameter

from msrun_cli.common.errors import ConfigError
from msrun_cli.config.name_patterns import matching
from msrun_cli.optim.parameter_groups import ParameterSetting, split_groups


@dataclass(frozen=True)
class NamedGroup:
    """pattern: of the parameters' names; lr_scale: factor on their rate; weight_decay: of their weights, None = the
    optimizer's."""

    pattern: str
    lr_scale: float = 1.0
    weight_decay: float | None = None


def parameter_settings(
    params: Sequence[Parameter],
    groups: Mapping[str, NamedGroup],
    layer_decay: float | None = None,
    root: str = "",
) -> dict[str, ParameterSetting]:
    """Setting by parameter name. A parameter belongs to the last group that its name fits.

    layer_decay: factor from one layer to the layer before it, above 0 and at most 1; None = off. It multiplies the
    factor of the group. root: beginning of the names that is no layer, see `layers_of`.

    Raises:
        ConfigError: a group's pattern fits nothing, or groups behind it take all its parameters.
    """
    names = [parameter.name for parameter in params]
    owner: dict[str, str] = {}
    for key, group in groups.items():
        for name in matching(names, group.pattern, f"optimizer.groups.{key}.pattern={group.pattern}"):
            owner[name] = key
    for key in groups:
        if key not in owner.values():
            raise ConfigError(
                f"optimizer.groups.{key}.pattern={groups[key].pattern}: groups behind it take all its parameters, "
                "since the last one that fits a name counts. Move it to the end, or narrow the others."
            )
    scales = layer_scales(params, layer_decay, root) if layer_decay is not None else {}
    settings = {}
    for name in names:
        group = groups[owner[name]] if name in owner else NamedGroup("*")
        setting = ParameterSetting(group.lr_scale * scales.get(name, 1.0), group.weight_decay)
        if setting != ParameterSetting():
            settings[name] = setting
    return settings


def layer_scales(params: Sequence[Parameter], decay: float, root: str = "") -> dict[str, float]:
    """decay ** (number of layers behind that of the parameter), by name."""
    layers = layers_of(params, root)
    return {
        parameter.name: decay ** (len(layers) - 1 - depth) for depth, layer in enumerate(layers) for parameter in layer
    }


def layers_of(params: Sequence[Parameter], root: str = "") -> list[list[Parameter]]:
    """The layers of a network from its input to its output, told by names and order.

    A layer is all that shares its name up to the first number, such as `model.3`, `layer2.0` or `blocks.7`. What has
    no number and stands together, before or behind such blocks, is one layer: the stem or the head. In a network
    without any number each cell at the top is a layer. Norms and biases alone are part of the layer before them.
    The order is that of the network's cells. root: beginning of all names that does not count, such as `cell.`.
    """
    layers: dict[str, list[Parameter]] = {}
    for parameter, key in zip(params, _keys([parameter.name.removeprefix(root) for parameter in params]), strict=True):
        layers.setdefault(key, []).append(parameter)
    return _joined(list(layers.values()))


def _keys(names: Sequence[str]) -> list[str]:
    """What the parameters of one layer have in common, by parameter."""
    blocks = [_block(name) for name in names]
    if not any(blocks):
        return [name.split(".")[0] for name in names]
    keys: list[str] = []
    for index, block in enumerate(blocks):
        goes_on = index > 0 and blocks[index - 1] is None
        keys.append(block or (keys[-1] if goes_on else f"without number, from {index}"))
    return keys


def _block(name: str) -> str | None:
    """The name up to its first number, `layer2.0` of `layer2.0.conv1.weight`; None where there is none."""
    parts = name.split(".")
    number = next((index for index, part in enumerate(parts) if part.isdigit()), None)
    return None if number is None else ".".join(parts[: number + 1])


def _joined(layers: list[list[Parameter]]) -> list[list[Parameter]]:
    joined: list[list[Parameter]] = []
    for layer in layers:
        if joined and not split_groups(layer)[0]:
            joined[-1] += layer
        else:
            joined.append(layer)
    return joined
