"""Checkpoint files: MindSpore's own format, written atomically."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, nn

from msrun_cli.common.errors import CheckpointError
from msrun_cli.common.files import atomic_path, write_json

AVERAGE_PREFIX = "ema."
CLASS_NAMES = "class_names"  # entry of a checkpoint: a JSON list


def save_checkpoint(path: Path, parameters: Iterable[Parameter], class_names: Sequence[str] = ()) -> None:
    """Write the parameters under their names, and the names of the classes as one text.

    Raises:
        CheckpointError: the file cannot be written; an older file of the same name is intact.
    """
    entries = [{"name": parameter.name, "data": parameter} for parameter in parameters]
    try:
        with atomic_path(path) as temporary:
            ms.save_checkpoint(entries, str(temporary), append_dict={CLASS_NAMES: json.dumps(list(class_names))})
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error).strip().split("\n", 1)[0]
        raise CheckpointError(
            f"{path} cannot be written ({reason}). Free space or set output_dir to a folder that you own; "
            "older checkpoints are intact."
        ) from error


def stored_class_names(path: str) -> list[str] | None:
    """The names that `save_checkpoint` wrote into a .ckpt file; None for any other file."""
    if not path.endswith(".ckpt"):
        return None
    text = ms.load_checkpoint(str(Path(path).resolve())).get(CLASS_NAMES)
    text = getattr(text, "value", text)  # versions differ in how they give texts back
    return json.loads(text) if text else None


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """state.json beside the checkpoints: epoch, step, metrics, best."""
    write_json(folder / "state.json", dict(state))


def training_parameters(*cells: nn.Cell) -> list[Parameter]:
    """All that a checkpoint of training holds, each once: weights, their average, optimizer and scale state."""
    found: dict[str, Parameter] = {}
    for cell in cells:
        for parameter in cell.get_parameters():
            found.setdefault(parameter.name, parameter)
    return list(found.values())


def inference_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights to evaluate or to start from: the average where the file has one, else the plain weights."""
    averages = {name[len(AVERAGE_PREFIX) :]: array for name, array in arrays.items() if name.startswith(AVERAGE_PREFIX)}
    return averages or dict(arrays)
