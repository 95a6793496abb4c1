"""The device and MindSpore's global settings, chosen once per process."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mindspore as ms

from msrun_cli.common.errors import ConfigError, DeviceError
from msrun_cli.kernels.library import kernel_library
from msrun_cli.runtime import rank_environment
from msrun_cli.runtime.process import onednn_sentence
from msrun_cli.runtime.ranks import Ranks, join

TARGETS = {"cpu": "CPU", "ascend": "Ascend", "gpu": "GPU"}

log = logging.getLogger("msrun")


@dataclass(frozen=True)
class Device:
    """What the process runs on.

    target: "CPU", "Ascend" or "GPU", as MindSpore names it.
    graph: graph mode (else PyNative).
    sink: whether the dataset is sunk to the device; sink_size: steps per sink, -1 = a whole epoch, "auto" = about those
    of a log interval.
    dvpp: whether the device decodes and resizes images.
    ranks: the processes that work together, each with its own device.
    kernels: the library with kernels of our own; None = without.
    """

    target: str
    graph: bool
    sink: bool
    sink_size: int | str
    dvpp: bool
    ranks: Ranks = Ranks()
    kernels: Path | None = None


def start_device(
    *,
    target: str,
    mode: str,
    jit_level: str | None,
    deterministic: bool,
    kernels: str,
    save_graphs: bool,
    sink: str,
    sink_size: int | str,
    dvpp: bool,
    amp_level: str,
    amp_dtype: str,
    seed: int,
    compiler_dir: Path,
    parallel: Any,
) -> Device:
    """Set MindSpore's context; every wish that the device cannot honour or that does not pay is one line in the log.

    compiler_dir: where graphs and other droppings of the compiler go, never the working directory.
    parallel: the group of the configuration; it counts where this process is one of several.

    Raises:
        DeviceError: the target is not there, or the other ranks are not.
        ConfigError: a combination that only shows once the device is known.
    """
    name = TARGETS[target] if target != "auto" else _find_target()
    _redirect_droppings(compiler_dir)
    try:
        ms.set_device(name)
    except (RuntimeError, ValueError) as error:
        raise DeviceError(_unusable(name, error)) from error
    graph = mode == "graph"
    if amp_dtype == "bfloat16" and amp_level != "O0" and name == "CPU":
        raise ConfigError(
            f"amp.dtype=bfloat16 with amp.level={amp_level}: MindSpore has no bfloat16 convolution on a CPU "
            "(device=auto found a CPU). Use amp.dtype=float16."
        )
    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    if graph and jit_level is not None:
        ms.set_context(jit_config={"jit_level": jit_level})
    if deterministic:
        ms.set_context(deterministic="ON")
    if save_graphs and graph:
        ms.set_context(save_graphs=2, save_graphs_path=str(compiler_dir))
    ms.set_seed(seed)
    sunk = sink != "off" and name != "CPU" and graph
    feeding = "data sink" if sunk else "batches fed one by one (no data sink)"
    log.info("device %s, %s mode, %s, MindSpore %s", name, mode, feeding, ms.__version__)
    ranks = _meet_the_others(name, parallel)
    for line in _remarks(name, graph, jit_level, save_graphs, dvpp, sink, amp_level):
        log.warning("%s", line)
    if name == "CPU":
        log.info("%s", onednn_sentence())
    library = kernel_library(kernels) if name == "CPU" else None
    if kernels == "on" and name != "CPU":
        log.warning("device.kernels=on has no effect on a %s: there are kernels for a CPU only", name)
    return Device(name, graph, sunk, sink_size, dvpp and name == "Ascend", ranks, library)


def _meet_the_others(target: str, parallel: Any) -> Ranks:
    if rank_environment.rank() is None:
        return Ranks()
    mode = parallel["mode"]
    if target == "CPU" and mode != "data_parallel":
        raise ConfigError(
            f"parallel={mode}: on a CPU (device=auto found one) MindSpore offers data_parallel only. Set "
            "parallel=data_parallel."
        )
    try:
        ranks = join(parallel)
    except RuntimeError as error:
        raise DeviceError(
            f"the processes of this job did not meet ({_first_line(error)}). Look for the first error in the logs of "
            "the other ranks; a larger launch.timeout_s waits longer for slow hosts."
        ) from error
    log.info("rank %d of %d, %s", ranks.rank, ranks.count, mode)
    return ranks


def _remarks(
    name: str, graph: bool, jit_level: str | None, save_graphs: bool, dvpp: bool, sink: str, amp_level: str
) -> list[str]:
    remarks = []
    if dvpp and name != "Ascend":
        remarks.append(f"device.dvpp=true has no effect on a {name}: the CPU decodes and resizes images")
    if sink == "on" and name == "CPU":
        remarks.append("device.sink=on: MindSpore does not sink data on a CPU; batches are fed one by one instead")
    elif sink == "on" and not graph:
        remarks.append("device.sink=on needs graph mode; with device.mode=pynative batches are fed one by one instead")
    if not graph:
        if jit_level is not None:
            remarks.append(f"device.jit_level={jit_level} has no effect with device.mode=pynative")
        if save_graphs:
            remarks.append("device.save_graphs=true has no effect with device.mode=pynative: there is no graph to save")
        if name == "CPU":
            remarks.append("device.mode=pynative is several times slower than graph mode on a CPU")
    if amp_level != "O0" and name == "CPU":
        remarks.append(f"amp={amp_level} on a CPU is exact to its level but not faster than O0")
    return remarks


def _find_target() -> str:
    """Ascend where the installed MindSpore can use one, else CPU."""
    try:
        if ms.device_context.ascend.is_available():
            return "Ascend"
    except RuntimeError as error:  # a broken driver or CANN: say it, since the user may expect the NPU
        log.warning("device=auto: an Ascend device cannot be used (%s); falling back to the CPU", _first_line(error))
    return "CPU"


def _redirect_droppings(folder: Path) -> None:
    """Dumps of failed graphs (rank_0/), compiled kernels (kernel_meta/); a user's own setting wins."""
    for variable in ("MS_OM_PATH", "MS_COMPILER_CACHE_PATH"):
        os.environ.setdefault(variable, str(folder))


def _unusable(name: str, error: Exception) -> str:
    chosen = next(key for key, value in TARGETS.items() if value == name)
    return (
        f"device={chosen}: MindSpore {ms.__version__} cannot use {name} on this machine ({_first_line(error)}). "
        "Use device=cpu or device=auto here, or install the driver, CANN and the MindSpore version that belong "
        "together."
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
