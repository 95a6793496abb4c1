"""Which parameters get weight decay and which rate."""

from __future__ import annotations

from collections.abc import Iterable

from mindspore import Parameter


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
