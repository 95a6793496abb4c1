"""Which parameters get weight decay and which rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mindspore import Parameter

KINDS = ("weights", "norms", "biases")

# (first place, place behind the last, factor on the rate, whether the rate is that of the biases, factor on the
# optimizer's weight decay, weight decay besides): plain numbers, which a graph takes as constants.
Group = tuple[int, int, float, bool, float, float]


@dataclass(frozen=True)
class ParameterSetting:
    """lr_scale: factor on the learning rate, above 0; weight_decay: at least 0, None = the optimizer's.

    Norms and biases have no weight decay, whatever stands here.
    """

    lr_scale: float = 1.0
    weight_decay: float | None = None


_DEFAULT = ParameterSetting()


def arranged(
    params: Iterable[Parameter], settings: Mapping[str, ParameterSetting] | None
) -> tuple[list[Parameter], tuple[Group, ...]]:
    """The parameters in the order in which an optimizer keeps them, and the groups of those that are updated alike.

    settings: by the parameter's name; those without one have the optimizer's rate and weight decay.
    """
    settings = settings or {}
    ordered: list[Parameter] = []
    groups: list[Group] = []
    for kind, members in zip(KINDS, split_groups(params), strict=True):
        alike: dict[ParameterSetting, list[Parameter]] = {}
        for parameter in members:
            alike.setdefault(settings.get(parameter.name, _DEFAULT), []).append(parameter)
        for setting, parameters in alike.items():
            start, stop = len(ordered), len(ordered) + len(parameters)
            own = setting.weight_decay
            decays = (1.0, 0.0) if own is None else (0.0, float(own))
            if kind != "weights":
                decays = (0.0, 0.0)
            groups.append((start, stop, float(setting.lr_scale), kind == "biases", *decays))
            ordered += parameters
    return ordered, tuple(groups)


def split_groups(params: Iterable[Parameter]) -> tuple[list[Parameter], list[Parameter], list[Parameter]]:
    """(weights, norms, biases): by name and shape; no weight decay on norms and biases."""
    weights, norms, biases = [], [], []
    for parameter in params:
        last = parameter.name.rpartition(".")[2]
        if last in ("beta", "bias"):
            biases.append(parameter)
        elif len(parameter.shape) > 1:
            weights.append(parameter)
        else:
            norms.append(parameter)
    return weights, norms, biases
