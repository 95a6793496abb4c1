"""Arrays by name -> network parameters, with an account of what was not loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from mindspore import Tensor, nn

from msrun_cli.common.errors import CheckpointError

# MindSpore's name of a BatchNorm parameter -> the name it has in a PyTorch state dict.
PYTORCH_SUFFIXES = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}


@dataclass(frozen=True)
class LoadReport:
    """Names of parameters that were set from the file, and of those left as initialised (with the reason)."""

    loaded: tuple[str, ...]
    fresh: tuple[str, ...]

    def __str__(self) -> str:
        text = f"{len(self.loaded)} of {len(self.loaded) + len(self.fresh)} parameters loaded"
        if self.fresh:
            text += "; left fresh because the number of classes differs: " + ", ".join(self.fresh)
        return text


def assign_weights(
    network: nn.Cell, arrays: Mapping[str, np.ndarray], source: str, head: Sequence[str] = ()
) -> LoadReport:
    """Set every parameter of `network` from `arrays`, whose names may be MindSpore's or PyTorch's.

    A parameter under one of the `head` prefixes may differ in shape and is then left fresh. A prefix that every name of
    the file has (`module.` of nn.DataParallel, `model.`) is taken off where the names do not fit otherwise; a network
    that wraps another one names the wrapped one's prefix in `weight_prefix`.

    Raises:
        CheckpointError: a parameter outside the head is missing in the file or has another shape there.
        Nothing is set then.
    """
    chosen: dict[str, np.ndarray] = {}
    fresh, missing, different = [], [], []
    parameters = dict(network.parameters_and_names())
    arrays = _fitting_names(list(parameters), arrays, getattr(network, "weight_prefix", ""))
    for name, parameter in parameters.items():
        key = _find(name, arrays)
        in_head = any(name.startswith(prefix) for prefix in head)
        if key is None:
            missing.append(name)
        elif tuple(arrays[key].shape) == tuple(parameter.shape):
            chosen[name] = arrays[key]
        elif in_head:
            fresh.append(name)
        else:
            different.append(f"{name} is {tuple(arrays[key].shape)} in the file and {tuple(parameter.shape)} here")
    if missing or different:
        raise CheckpointError(_misfit(source, missing, different, len(parameters)))
    for name, array in chosen.items():
        parameters[name].set_data(Tensor(np.ascontiguousarray(array), dtype=parameters[name].dtype))
    return LoadReport(tuple(chosen), tuple(fresh))


def _fitting_names(
    parameters: Sequence[str], arrays: Mapping[str, np.ndarray], wrapper: str
) -> Mapping[str, np.ndarray]:
    """The arrays under the names, of those with and without prefixes, that fit most parameters."""
    best, most = arrays, _count_found(parameters, arrays)
    prefix = _common_prefix(list(arrays))
    for taken, added in ((prefix, ""), ("", wrapper), (prefix, wrapper)):
        renamed = {added + name[len(taken) :]: array for name, array in arrays.items()}
        count = _count_found(parameters, renamed)
        if count > most:
            best, most = renamed, count
    return best


def _count_found(parameters: Sequence[str], arrays: Mapping[str, np.ndarray]) -> int:
    return sum(_find(name, arrays) is not None for name in parameters)


def _common_prefix(names: Sequence[str]) -> str:
    """The leading parts, up to a dot, that all names share; empty when there are none."""
    shared = os.path.commonprefix(list(names))
    return shared[: shared.rfind(".") + 1]


def _find(name: str, arrays: Mapping[str, np.ndarray]) -> str | None:
    if name in arrays:
        return name
    stem, _, last = name.rpartition(".")
    foreign = f"{stem}.{PYTORCH_SUFFIXES.get(last, last)}"
    return foreign if foreign in arrays else None


def _misfit(source: str, missing: list[str], different: list[str], total: int) -> str:
    reasons = []
    if missing:
        reasons.append(f"{len(missing)} of {total} parameters are not in it ({', '.join(missing[:3])}, ...)")
    if different:
        reasons.append(f"{len(different)} have another shape ({'; '.join(different[:3])})")
    return (
        f"The weights in {source} do not fit this network: {' and '.join(reasons)}. "
        "They belong to another model; choose the matching one, for example model=yolov5s for yolov5s weights."
    )
