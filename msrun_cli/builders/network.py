"""Networks and the weights that go into them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import mindspore as ms
from mindspore import nn

from msrun_cli.builders.nodes import instantiate
from msrun_cli.common.errors import DataError
from msrun_cli.config.schema import EvalConfig, TrainConfig
from msrun_cli.engine.checkpoint import Checkpoint, inference_arrays, newest_complete, state_among
from msrun_cli.models.freezing import freeze
from msrun_cli.models.sync_batch_norm import synchronize_norms
from msrun_cli.models.weight_file import read_weights
from msrun_cli.models.weights import LoadReport, assign_weights

log = logging.getLogger("msrun")


def build_network(cfg: TrainConfig | EvalConfig, class_names: Sequence[str]) -> nn.Cell:
    """The network in float32, as initialised, with a head for these classes."""
    return instantiate(cfg.model.network, num_classes=len(class_names), _convert_="all")


def load_weights(network: nn.Cell, path: str, *, strict: bool) -> LoadReport:
    """Set the network's parameters from a file.

    strict: a head for another number of classes is an error instead of being left fresh.
    """
    head = () if strict else getattr(network, "head_prefixes", ())
    return assign_weights(network, inference_arrays(read_weights(path)), path, head)


def synchronize(cfg: TrainConfig, network: nn.Cell, target: str) -> None:
    """Let BatchNorm see the batches of all devices, where it is asked for. target: "Ascend", "GPU" or "CPU"."""
    if not cfg.sync_batch_norm:
        return
    devices = int(ms.get_auto_parallel_context("device_num"))
    if devices < 2:
        log.warning("sync_batch_norm=true has no effect: this training runs on one device")
        return
    log.info("sync_batch_norm: %d layers see %d devices", synchronize_norms(network, devices, target), devices)


def freeze_parameters(cfg: TrainConfig, network: nn.Cell) -> None:
    """Take what `freeze` names out of training."""
    if cfg.freeze:
        log.info("frozen: %s", freeze(network, list(cfg.freeze)))


def read_resumed(cfg: TrainConfig) -> Checkpoint | None:
    """The checkpoint to go on from; a damaged one is passed over for the one before."""
    return None if cfg.resume is None else newest_complete(Path(cfg.resume))


def check_class_names(path: str, class_names: Sequence[str]) -> None:
    """Say when a checkpoint was trained on classes of other names: their order decides what is counted as right.

    Raises:
        DataError: the same names in another order.
    """
    state = state_among(read_weights(path)) or {}
    stored = state.get("classes")
    if stored is None or stored == list(class_names):
        return
    place = next((i for i, pair in enumerate(zip(stored, class_names, strict=False)) if pair[0] != pair[1]), None)
    if place is None:
        place = min(len(stored), len(class_names))
    there, here = (f'"{names[place]}"' if place < len(names) else "missing" for names in (stored, class_names))
    text = f"{path} was trained on other class names: class {place} is {there} there and {here} here."
    if sorted(stored) == sorted(class_names):
        raise DataError(f"{text} They are the same in another order. Bring the data's classes into that order.")
    log.warning("%s Classes are compared by their position.", text)
