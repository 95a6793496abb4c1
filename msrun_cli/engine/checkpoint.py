"""Checkpoint files: MindSpore's own format with a checksum, the state of the training inside, written atomically."""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from msrun_cli.common.errors import CheckpointError
from msrun_cli.common.files import atomic_path
from msrun_cli.models.weight_file import read_mindspore_checkpoint

log = logging.getLogger("msrun")

AVERAGE_PREFIX = "ema."

# The state stands in the file itself, as bytes of JSON: two files could come from two different moments.
_STATE = "msrun.state"


@dataclass(frozen=True)
class Checkpoint:
    """path: the file; arrays: all parameters by name; state: what save_checkpoint was given."""

    path: Path
    arrays: dict[str, np.ndarray]
    state: dict[str, Any]


class CheckpointWriter:
    """Writes checkpoints at once, or one at a time beside the training.

    background: parameters are copied, and a thread writes the copy; the result is the same file.
    """

    def __init__(self, background: bool = False) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="msrun-checkpoint") if background else None
        self._pending: Future[None] | None = None

    def write(
        self, path: Path, parameters: Iterable[Parameter], state: Mapping[str, Any], before: Callable[[], None]
    ) -> None:
        """save_checkpoint, with `before` called when it is the file's turn. May raise the error of the write before."""

        def save(entries: list[tuple[str, Parameter | Tensor]]) -> None:
            try:
                before()
            except OSError as error:
                raise _cannot_write(path, error) from error
            save_checkpoint(path, entries, state)

        if self._pool is None:
            save([(parameter.name, parameter) for parameter in parameters])
            return
        self.finish()
        copies = [(parameter.name, parameter.value().copy()) for parameter in parameters]
        self._pending = self._pool.submit(save, copies)

    def finish(self) -> None:
        """Wait for the file that is being written. Raises its error."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def save_checkpoint(path: Path, entries: Iterable[tuple[str, Parameter | Tensor]], state: Mapping[str, Any]) -> None:
    """Write (name, value) pairs, the state (anything JSON can hold) and a checksum over both.

    Raises:
        CheckpointError: the file cannot be written; an older file of the same name is intact.
    """
    packed = np.frombuffer(json.dumps(state).encode(), np.uint8)
    data = [{"name": name, "data": value} for name, value in (*entries, (_STATE, Tensor(packed.copy())))]
    try:
        with atomic_path(path) as temporary:
            ms.save_checkpoint(data, str(temporary), crc_check=True)
    except (OSError, RuntimeError) as error:
        raise _cannot_write(path, error) from error


def put_together(step: nn.Cell, wanted: Sequence[Parameter]) -> list[Parameter]:
    """The parameters whole, where the compiler has split them among the ranks; to be called by all of them.

    step: the compiled cell, which knows how they are split.
    """
    names = {parameter.name for parameter in wanted}
    with tempfile.TemporaryDirectory(prefix="msrun-checkpoint-") as folder:
        path = Path(folder) / "whole.ckpt"
        ms.save_checkpoint(step, str(path), integrated_save=True)
        found = ms.load_checkpoint(str(path))
    return [parameter for name, parameter in found.items() if name in names]


def _cannot_write(path: Path, error: Exception) -> CheckpointError:
    reason = getattr(error, "strerror", None) or str(error).strip().split("\n", 1)[0]
    return CheckpointError(
        f"{path} cannot be written ({reason}). Free space or set output_dir to a folder that you own; "
        "older checkpoints are intact."
    )


def read_checkpoint(path: Path) -> Checkpoint:
    """Raises CheckpointError when the file is missing, damaged, or holds no state to go on from."""
    arrays = read_mindspore_checkpoint(path)
    state = state_among(arrays)
    arrays.pop(_STATE, None)
    if state is None:
        raise CheckpointError(
            f"{path} holds weights but no state of a training. To start a new training from its weights, use "
            f"weights={path}."
        )
    return Checkpoint(path, arrays, state)


def state_among(arrays: Mapping[str, np.ndarray]) -> dict[str, Any] | None:
    """The state that save_checkpoint put among the arrays of a file; None where there is none."""
    packed = arrays.get(_STATE)
    try:
        state = json.loads(packed.tobytes()) if packed is not None else None
    except ValueError:
        state = None
    return state if isinstance(state, dict) else None


def newest_complete(path: Path) -> Checkpoint:
    """The checkpoint `path`, or, where it is damaged, the newest other one of its folder that is not.

    A damaged file is named in the log. Raises CheckpointError when none is left.
    """
    faults: list[str] = []
    for candidate in (path, *older_checkpoints(path)):
        try:
            checkpoint = read_checkpoint(candidate)
        except CheckpointError as error:
            faults.append(str(error))
            continue
        for fault in faults:
            log.warning("%s Going on from %s instead.", fault, candidate)
        return checkpoint
    raise CheckpointError("\n\n".join(faults))


def older_checkpoints(path: Path) -> list[Path]:
    """The other checkpoints of a run, newest first, without the best ones, which may be much older."""
    others = [file for file in path.parent.glob("*.ckpt") if file != path and re.match(r"(last|epoch)", file.name)]
    return sorted(others, key=lambda file: file.stat().st_mtime, reverse=True)


def assign_all(checkpoint: Checkpoint, parameters: Iterable[Parameter]) -> None:
    """Set every parameter from the checkpoint. Raises CheckpointError naming what does not fit."""
    wanted = {parameter.name: parameter for parameter in parameters}
    arrays = checkpoint.arrays
    faults = [f"{name} is missing" for name in wanted if name not in arrays]
    faults += [f"{name} belongs to nothing" for name in arrays if name not in wanted]
    faults += [
        f"{name} is {arrays[name].shape} in the file and {tuple(parameter.shape)} here"
        for name, parameter in wanted.items()
        if name in arrays and arrays[name].shape != tuple(parameter.shape)
    ]
    if faults:
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise CheckpointError(
            f"{checkpoint.path} is from another model, optimizer or setting: {'; '.join(faults[:3])}{more}. Resume "
            "with the settings of that run, or start a new training from its weights with weights=..."
        )
    for name, parameter in wanted.items():
        parameter.set_data(Tensor(arrays[name], parameter.dtype))


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
